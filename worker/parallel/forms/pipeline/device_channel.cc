#include "worker/parallel/forms/pipeline/device_channel.h"

#include <utility>

namespace ddprun::pipeline {

void DeviceExchange::put(int rank, const Message& message, Tensor value) {
  {
    const std::lock_guard lock(mutex_);
    messages_[{rank, message.stage, message.micro_batch, message.is_gradient}] = std::move(value);
  }
  changed_.notify_all();
}

Tensor DeviceExchange::take(int rank, const Message& message) {
  const Key key{rank, message.stage, message.micro_batch, message.is_gradient};
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || messages_.contains(key); });
  if (failure_) std::rethrow_exception(failure_);
  return std::move(messages_.extract(key).mapped());
}

void DeviceExchange::fail(std::exception_ptr failure) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
  }
  changed_.notify_all();
}

void DeviceExchange::rethrow_failure() {
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

}  // namespace ddprun::pipeline
