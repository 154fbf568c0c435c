#include "worker/cuda/emulator/machine.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>
#include <thread>

namespace ddprun::cuda::emulator {

Machine::OpenMemory::OpenMemory(Machine& machine) : machine_(machine) {
  for (const auto& device : machine_.devices_) device->memory.open();
}

Machine::OpenMemory::~OpenMemory() {
  for (const auto& device : machine_.devices_) device->memory.close();
}

Machine& Machine::get() {
  static auto& machine = *new Machine;  // never destroyed: other static objects may still call
  return machine;
}

Machine::Machine() : settings_(read_settings()), random_(settings_.seed) {
  for (int i = 0; i < std::ssize(settings_.devices); ++i)
    devices_.push_back(std::make_unique<Device>(i, settings_.memory));
  calls_.fail(settings_.fail);
}

Device* Machine::owner(const void* memory) {
  for (const auto& device : devices_)
    if (device->memory.contains(memory)) return device.get();
  return nullptr;
}

std::string Machine::bus_id(int device) const {
  std::array<char, 16> id{};
  const int number = settings_.devices[static_cast<std::size_t>(device)] + 1;
  std::snprintf(id.data(), id.size(), "0000:%02x:00.0", static_cast<unsigned>(number) % 256);
  return id.data();
}

int& Machine::current_device() {
  thread_local int current = 0;
  return current;
}

CUstream_st* Machine::add_stream(int device) {
  streams_.push_back(std::make_unique<CUstream_st>(CUstream_st{device}));
  return streams_.back().get();
}

void Machine::remove_stream(CUstream_st* stream) {
  std::erase_if(streams_, [&](const auto& other) { return other.get() == stream; });
}

CUstream_st* Machine::find_stream(cudaStream_t stream) {
  if (stream == nullptr) return &device(current_device()).default_stream;
  for (const auto& other : streams_)
    if (other.get() == stream) return other.get();
  for (const auto& device : devices_)
    if (&device->default_stream == stream) return stream;
  return nullptr;
}

CUevent_st* Machine::add_event(int device, bool is_timed) {
  auto event = std::make_unique<CUevent_st>(CUevent_st{device, is_timed});
  CUevent_st* const handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

bool Machine::is_idle(int device) const {
  for (const auto& stream : streams_)
    if (stream->device == device && !stream->operations.empty()) return false;
  return devices_[static_cast<std::size_t>(device)]->default_stream.operations.empty();
}

void Machine::enqueue(CUstream_st* stream, StreamOperation operation, Duration duration) {
  stream->operations.push_back({std::move(operation), duration, now()});
}

Time Machine::now() const {
  return settings_.counts_operations ? latest_ : Time(std::chrono::steady_clock::now().time_since_epoch());
}

bool Machine::run_first(CUstream_st& stream) {
  constexpr Time time_of_operation = std::chrono::microseconds(1);
  QueuedOperation& first = stream.operations.front();
  stream.time = std::max(stream.time, first.queued);
  const Time before = now();
  if (!first.run()) {
    first.has_waited = true;
    return false;
  }
  if (first.duration == Duration::work) {
    stream.time += settings_.counts_operations ? time_of_operation : now() - before;
    if (first.has_waited) stream.time = std::max(stream.time, now());
  }
  latest_ = std::max(latest_, stream.time);
  stream.operations.pop_front();
  return true;
}

void Machine::drift() {
  // This happens rarely, and then much at once: each time, the pages of the devices change their protection.
  constexpr std::uint32_t rarity = 16, most = 48;
  if (random_.below(rarity) != 0) return;
  const OpenMemory open(*this);
  for (std::uint32_t left = random_.below(most); left > 0 && step(); --left) {
  }
}

void Machine::work_some() {
  constexpr std::uint32_t most = 8;
  const OpenMemory open(*this);
  for (std::uint32_t left = 1 + random_.below(most); left > 0 && step(); --left) {
  }
}

void Machine::work_until(const std::function<bool()>& done) {
  while (!done()) {
    bool progress = false;
    {
      const OpenMemory open(*this);
      while (!done() && step()) progress = true;
    }
    if (progress) continue;
    mutex_.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));  // another thread or process has to act
    mutex_.lock();
  }
}

void Machine::work_while_possible() {
  const OpenMemory open(*this);
  while (step()) {
  }
}

bool Machine::step() {
  waiting_.clear();
  for (const auto& stream : streams_)
    if (!stream->operations.empty()) waiting_.push_back(stream.get());
  for (const auto& device : devices_)
    if (!device->default_stream.operations.empty()) waiting_.push_back(&device->default_stream);
  while (!waiting_.empty()) {
    const std::size_t chosen = random_.below(static_cast<std::uint32_t>(waiting_.size()));
    CUstream_st* const stream = waiting_[chosen];
    if (run_first(*stream)) return true;
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(chosen));
  }
  return false;
}

std::uint64_t Machine::live(std::string_view kind) const {
  if (kind == "pinned memory") return pinned_.size();
  if (kind == "streams") return streams_.size();
  if (kind == "events") return events_.size();
  if (kind == "communicators") return communicators_;
  if (kind == "library objects") return library_objects_;
  std::uint64_t bytes = 0;
  if (kind == "device bytes")
    for (const auto& device : devices_) bytes += device->memory.allocated();
  return bytes;
}

Call::Call(const char* function)
    : machine_(Machine::get()),
      lock_(machine_.mutex()),
      function_(function),
      observer_(machine_.observer()),
      fails_(machine_.calls().add(function, machine_.current_device())) {
  machine_.drift();
}

Call::~Call() {
  lock_.unlock();
  if (observer_.function != nullptr) observer_.function(function_, machine_.current_device(), observer_.context);
}

}  // namespace ddprun::cuda::emulator
