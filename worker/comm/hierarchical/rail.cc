#include "ddprun/worker/comm/hierarchical/rail.h"

#include "ddprun/worker/comm/transport/quiet_thread.h"

namespace ddprun::comm {

Rail::Rail(std::shared_ptr<Transport> transport)
    : transport_(std::move(transport)), thread_(start_quiet_thread([this] { work(); })) {}

Rail::~Rail() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    tasks_.clear();
    changed_.notify_all();
  }
  thread_.join();
}

std::uint64_t Rail::post(Task task) {
  const std::lock_guard lock(mutex_);
  if (!failure_) tasks_.push_back(std::move(task));
  changed_.notify_all();
  return ++posted_;
}

void Rail::await(std::uint64_t tasks) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || done_ >= tasks; });
  if (failure_) std::rethrow_exception(failure_);
}

void Rail::stop() noexcept {
  transport_->interrupt();
  std::unique_lock lock(mutex_);
  tasks_.clear();
  changed_.wait(lock, [this] { return idle(); });
}

void Rail::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return closed_ || !tasks_.empty(); });
    if (closed_) return;
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    running_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      task(*transport_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    running_ = false;
    ++done_;
    if (failure) {
      failure_ = failure;
      tasks_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace ddprun::comm
