#include "worker/comm/backends/nccl/channels.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "worker/comm/backends/nccl/communicator.h"
#include "worker/comm/backends/nccl/cuda_resources.h"
#include "worker/comm/backends/nccl/device_memory.h"
#include "worker/comm/backends/nccl/nccl_types.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds test_interval(20);  // between two tests of the interruption or the store

// Describes a message, so that the receiver can compare it with what it expects.
struct Header {
  std::uint64_t count = 0;
  std::uint64_t dtype = 0;
  friend bool operator==(const Header&, const Header&) = default;
};

// Device resources of a channel. Not nested in its class, because clang rejects an optional of a nested class whose
// members have initializers.
struct ChannelResources {
  explicit ChannelResources(int device)
      : placeholder(device, 1),
        header(device, sizeof(Header)),
        pinned(device, sizeof(Header)),
        stream(device),
        earlier(device) {}

  DeviceMemory placeholder;  // sent by a message without elements
  DeviceMemory header;
  PinnedMemory pinned;
  Header* const host_header = new (pinned.get()) Header();  // copied to the device or from it
  Stream stream;
  Event earlier;  // marks the end of the default stream's earlier work
};

}  // namespace

ChannelName channel_of(const Operation& operation, int rank) {
  if (operation.kind == OpKind::send) return {rank, operation.peer, operation.tag};
  return {operation.peer, rank, operation.tag};
}

void ChannelCount::add(const ChannelName& name) {
  const std::lock_guard lock(mutex_);
  if (names_.contains(name)) return;
  if (names_.size() == max_channels) {
    throw make_error(Errc::unsupported,
                     "the nccl back end has a communicator for each sender, receiver and tag, at most {}: the one "
                     "from rank {} to rank {} with tag {} would exceed that",
                     max_channels, name.sender, name.receiver, name.tag);
  }
  names_.insert(name);
}

struct Channels::State {
  int rank;
  bool checked;
  const std::atomic<bool>& interrupted;
  int device = 0;
  std::shared_ptr<Store> store{};
  std::string prefix{};
  std::mutex mutex{};  // guards the map, whose elements keep their addresses
  std::map<ChannelName, Channel> channels{};
};

// Messages begin in the order of their numbers, whichever thread waits for them.
class Channels::Channel {
 public:
  Channel(State& state, const ChannelName& name) : state_(state), name_(name), communicator_(state.interrupted) {}

  // Returns at once, also while the channel is being created.
  std::uint64_t take_number() { return taken_++; }

  void execute(std::uint64_t number, Span memory, Deadline deadline) {
    if (!communicator_.await(*begin(number, memory, deadline), deadline)) throw std::runtime_error("timed out");
  }

  void finish(Deadline deadline) noexcept { communicator_.finish(deadline); }
  void stop() noexcept { communicator_.stop(has_resources_ ? &resources_->stream : nullptr); }

 private:
  std::unique_ptr<Event> begin(std::uint64_t number, Span memory, Deadline deadline) {
    std::unique_lock lock(mutex_);
    while (begun_ != number) {
      changed_.wait_for(lock, test_interval);
      if (state_.interrupted) throw std::runtime_error("interrupted");
      if (deadline.expired()) throw std::runtime_error("timed out");
    }
    const CurrentDevice here(state_.device);
    if (!resources_) connect(deadline);
    resources_->earlier.record(cudaStream_t(nullptr));
    resources_->earlier.precede(resources_->stream);
    if (state_.checked) sending() ? send_header(memory, deadline) : check_header(memory, deadline);
    communicator_.issue([&](ncclComm_t comm) { return enqueue(memory, comm); }, deadline);
    auto done = record_event();
    ++begun_;
    changed_.notify_all();
    return done;
  }

  std::unique_ptr<Event> record_event() const {
    auto event = std::make_unique<Event>(state_.device);
    event->record(resources_->stream);
    return event;
  }

  void send_header(Span memory, Deadline deadline) {
    *resources_->host_header = header_of(memory);
    copy_header(resources_->header.get(), resources_->host_header, cudaMemcpyHostToDevice, deadline);
    communicator_.issue([&](ncclComm_t comm) { return enqueue(header_on_device(), comm); }, deadline);
  }

  void check_header(Span memory, Deadline deadline) {
    communicator_.issue([&](ncclComm_t comm) { return enqueue(header_on_device(), comm); }, deadline);
    copy_header(resources_->host_header, resources_->header.get(), cudaMemcpyDeviceToHost, deadline);
    const auto sent = *resources_->host_header;
    if (sent == header_of(memory)) return;
    const Operation send{.kind = OpKind::send,
                         .dtype = static_cast<DType>(sent.dtype),
                         .count = static_cast<std::size_t>(sent.count),
                         .peer = name_.receiver,
                         .tag = name_.tag};
    const Operation recv{
        .kind = OpKind::recv, .dtype = memory.dtype, .count = memory.count, .peer = name_.sender, .tag = name_.tag};
    throw make_error(Errc::mismatch, "rank {} calls {}, rank {} calls {}", name_.sender, describe(send), name_.receiver,
                     describe(recv));
  }

  // Returns when the copy is complete.
  void copy_header(void* to, const void* from, cudaMemcpyKind kind, Deadline deadline) {
    check_cuda(api().cudaMemcpyAsync(to, from, sizeof(Header), kind, resources_->stream.get()), "cudaMemcpyAsync",
               state_.device);
    if (!communicator_.await(*record_event(), deadline)) throw std::runtime_error("timed out");
  }

  static Header header_of(Span memory) { return {memory.count, static_cast<std::uint64_t>(memory.dtype)}; }
  Span header_on_device() const { return {resources_->header.get(), sizeof(Header), DType::uint8}; }

  // The sender is rank 0 of the communicator.
  void connect(Deadline deadline) {
    const BlockedSignals blocked;  // NCCL starts threads
    resources_.emplace(state_.device);
    has_resources_ = true;
    const auto key = fmt::format("{}channel/{}-{}-{}", state_.prefix, name_.sender, name_.receiver, name_.tag);
    ncclUniqueId id;
    if (sending()) {
      id = make_unique_id(state_.device);
      state_.store->set(key, text_of(id), deadline);
    } else {
      id = unique_id_from(await_id(key, deadline));
    }
    communicator_.connect(state_.device, {id}, sending() ? 0 : 1, 2, deadline);
  }

  // Polls, because a blocking wait would occupy the connection to the store, which other channels use.
  std::string await_id(const std::string& key, Deadline deadline) const {
    while (!state_.store->check({key}, deadline)) {
      if (state_.interrupted) throw std::runtime_error("interrupted");
      std::this_thread::sleep_for(test_interval);
    }
    return state_.store->get(key, deadline);
  }

  NcclCall enqueue(Span memory, ncclComm_t comm) const {
    if (memory.count == 0) memory = {resources_->placeholder.get(), 1, DType::uint8};
    const auto type = type_of(memory.dtype);
    const auto stream = resources_->stream.get();
    if (sending()) return {"ncclSend", api().ncclSend(memory.data, memory.count, type, 1, comm, stream)};
    return {"ncclRecv", api().ncclRecv(memory.data, memory.count, type, 0, comm, stream)};
  }

  bool sending() const { return name_.sender == state_.rank; }

  const State& state_;
  const ChannelName name_;
  std::atomic<std::uint64_t> taken_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::uint64_t begun_ = 0;
  std::optional<ChannelResources> resources_;
  std::atomic<bool> has_resources_ = false;  // for threads without the mutex
  Communicator communicator_;                // last: aborted before its stream is destroyed
};

class Channels::ChannelTransfer : public Transfer {
 public:
  ChannelTransfer(Channel& channel, Span memory, int source)
      : channel_(channel), number_(channel.take_number()), memory_(memory), source_(source) {}
  // The memory of a transfer that has failed is its caller's from then on.
  ~ChannelTransfer() override {
    if (!done_) channel_.stop();
  }
  ChannelTransfer(const ChannelTransfer&) = delete;
  ChannelTransfer& operator=(const ChannelTransfer&) = delete;

  void wait(milliseconds timeout) override {
    channel_.execute(number_, memory_, Deadline::in(timeout));
    done_ = true;
  }
  int source() const override { return source_; }

 private:
  Channel& channel_;
  const std::uint64_t number_;
  const Span memory_;
  const int source_;
  bool done_ = false;
};

Channels::Channels(int rank, bool checked, const std::atomic<bool>& interrupted)
    : state_(new State{rank, checked, interrupted}) {}
Channels::~Channels() = default;

void Channels::open(int device, std::shared_ptr<Store> store, const std::string& prefix) {
  state_->device = device;
  state_->store = std::move(store);
  state_->prefix = prefix;
}

std::unique_ptr<Transfer> Channels::start(const Operation& operation, Span memory) {
  const auto name = channel_of(operation, state_->rank);
  const int source = operation.kind == OpKind::recv ? operation.peer : -1;
  const std::lock_guard lock(state_->mutex);
  auto& channel = state_->channels.try_emplace(name, *state_, name).first->second;
  return std::make_unique<ChannelTransfer>(channel, memory, source);
}

void Channels::stop() noexcept {
  const std::lock_guard lock(state_->mutex);
  for (auto& [name, channel] : state_->channels) channel.stop();
}

void Channels::finish(Deadline deadline) noexcept {
  for (auto& [name, channel] : state_->channels) channel.finish(deadline);
}

}  // namespace ddprun::comm
