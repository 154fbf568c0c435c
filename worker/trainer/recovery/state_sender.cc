#include "worker/trainer/recovery/state_sender.h"

#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "common/blocked_signals.h"
#include "common/log.h"
#include "worker/comm/collectives.h"
#include "worker/trainer/recovery/tensor_transfer.h"
#include "worker/trainer/state/run_checkpoint.h"

namespace ddprun::trainer {
namespace {

// The receivers' bound for an operation is longer.
constexpr std::chrono::seconds idle_interval{1};

Tensor buffer_of(std::size_t bytes) {
  return Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::uint8);
}

// Copies tensors one after the other to the beginning of the buffer, and returns that part of it.
Tensor pack(const std::vector<Tensor>& tensors, const Tensor& buffer) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) {
    if (tensor.bytes() > 0)
      std::memcpy(static_cast<std::byte*>(Tensor(buffer).raw()) + bytes, tensor.raw(), tensor.bytes());
    bytes += static_cast<std::int64_t>(tensor.bytes());
  }
  return buffer.slice(0, 0, bytes);
}

}  // namespace

StateSender::StateSender(TrainState& state, std::unique_ptr<ProcessGroup> group, std::size_t memory, std::size_t piece)
    : state_(state), group_(std::move(group)), memory_(memory), piece_(piece), parameters_(streamed_parameters(state)) {
  for (int rank = 1; rank < group_->size(); ++rank) receivers_.push_back(rank);
  for (const auto& parameter : parameters_) figures_.bytes += parameter.bytes();
  state_.listeners.push_back(this);
  thread_ = start_signal_free_thread([this] { run(); });
}

StateSender::~StateSender() {
  std::erase(state_.listeners, this);
  if (!finished_) group_->abort("the run does not go on as it was");  // the thread may have the lock while it sends
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StateSender::before_update() noexcept try {
  const auto began = std::chrono::steady_clock::now();
  updating_ = std::unique_lock(mutex_);
  const auto fits = [this] { return failed_ || updates_.empty() || update_bytes_ + gradient_bytes() <= memory_; };
  changed_.wait(updating_, fits);
  if (!failed_ && sent_ > 0) {
    update_bytes_ += updates_.emplace_back(capture()).gradients.bytes();
    ++figures_.updates;
  }
  figures_.waited += std::chrono::steady_clock::now() - began;
} catch (const std::exception& error) {  // the group fails, so that the receivers do not miss an update
  log::warn("cannot keep the gradients of a step for those that join: {}", error.what());
  failed_ = true;
  group_->abort(error.what());
}

void StateSender::after_update() noexcept {
  if (updating_) updating_.unlock();
  changed_.notify_all();
}

bool StateSender::finish(const StateRest& rest) {
  {
    const std::lock_guard lock(mutex_);
    if (!caught_up_ || failed_) return false;
    rest_ = rest;
  }
  changed_.notify_all();
  thread_.join();
  finished_ = complete_;
  return finished_;
}

void StateSender::run() noexcept try {
  take_memory();
  send_until_the_end();
} catch (const std::exception& error) {
  log::debug("sending the state to those that join: {}", error.what());
  const std::lock_guard lock(mutex_);
  failed_ = true;
  updates_.clear();
  changed_.notify_all();
}

// The first use of memory may take longer than a copy into it: no step waits for that of these buffers.
void StateSender::take_memory() {
  std::size_t largest_piece = 0;
  for (const auto& parameter : parameters_) {
    all_gradient_bytes_ += parameter.variable.value().bytes();
    if (parameter.bytes() <= piece_) largest_piece = piece_;
  }
  piece_buffer_ = buffer_of(largest_piece);
  free_buffers_.push_back(buffer_of(all_gradient_bytes_));
  for (auto* buffer : {&piece_buffer_, &free_buffers_.back()}) buffer->fill(0);
}

// Gradients come before parameters, so that few of them wait.
void StateSender::send_until_the_end() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!updates_.empty()) {
      send_update(lock);
    } else if (sent_ < parameters_.size()) {
      send_parameters(lock);
    } else if (rest_) {
      send_rest();
      complete_ = true;
      return;
    } else if (!changed_.wait_for(lock, idle_interval, [this] { return stopping_ || has_work(); })) {
      lock.unlock();
      send({}, {});
      lock.lock();
    }
  }
}

// REQUIRES: the lock, which is released while something is sent.
void StateSender::send_update(std::unique_lock<std::mutex>& lock) {
  auto update = std::move(updates_.front());
  updates_.pop_front();
  update.header.caught_up = catches_up();
  lock.unlock();
  send(update.header, {update.gradients});
  lock.lock();
  update_bytes_ -= update.gradients.bytes();
  free_buffers_.push_back(std::move(update.buffer));
  changed_.notify_all();
}

// REQUIRES: the lock, which is released while something is sent from a buffer.
void StateSender::send_parameters(std::unique_lock<std::mutex>& lock) {
  StreamHeader header{.kind = StreamHeader::Kind::parameters, .first = sent_};
  std::vector<Tensor> tensors;
  std::size_t bytes = 0;
  do {
    const auto& next = parameters_[sent_++];
    tensors.insert(tensors.end(), next.tensors.begin(), next.tensors.end());
    bytes += next.bytes();
  } while (sent_ < parameters_.size() && bytes + parameters_[sent_].bytes() <= piece_);
  header.end = sent_;
  header.caught_up = catches_up();
  if (bytes > piece_) return send(header, tensors);
  const auto copy = pack(tensors, piece_buffer_);
  lock.unlock();
  send(header, {copy});
  lock.lock();
}

void StateSender::send_rest() {
  std::vector<Tensor> buffers;
  for (const auto& [name, buffer] : state_.model->named_buffers()) buffers.push_back(buffer);
  send({.kind = StreamHeader::Kind::rest, .rest = encode(*rest_)}, buffers);
}

void StateSender::send(const StreamHeader& header, const std::vector<Tensor>& tensors) {
  broadcast_bytes(*group_, encode(header), 0);
  if (!tensors.empty()) transfer_tensors(tensors, *group_, receivers_);
}

// REQUIRES: the lock. Returns whether all is sent with what is sent next.
bool StateSender::catches_up() {
  if (sent_ == parameters_.size() && updates_.empty()) caught_up_ = true;
  return caught_up_;
}

// REQUIRES: the lock.
std::size_t StateSender::gradient_bytes() const {
  std::size_t bytes = 0;
  for (const auto& parameter : std::span(parameters_).first(sent_))
    if (const auto& gradient = parameter.variable.grad(); gradient.defined()) bytes += gradient.bytes();
  return bytes;
}

// REQUIRES: the lock. Parameters that are sent later are after this update then.
StateSender::Update StateSender::capture() {
  StreamHeader header{
      .kind = StreamHeader::Kind::update, .step_count = state_.optimizer->step_count(), .lr = state_.optimizer->lr()};
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < sent_; ++i) {
    const auto& gradient = parameters_[i].variable.grad();
    if (!gradient.defined()) continue;
    header.with_gradient.push_back(i);
    gradients.push_back(gradient);
  }
  if (free_buffers_.empty()) free_buffers_.push_back(buffer_of(all_gradient_bytes_));
  auto buffer = std::move(free_buffers_.back());
  free_buffers_.pop_back();
  auto packed = pack(gradients, buffer);
  return {.header = std::move(header), .gradients = std::move(packed), .buffer = std::move(buffer)};
}

}  // namespace ddprun::trainer
