#include "worker/comm/backends/hierarchical/rail.h"

#include <algorithm>

#include "common/blocked_signals.h"

namespace ddprun::comm {
namespace {

constexpr int max_running = 2;  // tasks

}  // namespace

Rail::Rail(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {
  const int threads = std::clamp(transport_->traits().concurrency, 1, max_running);
  for (int i = 0; i < threads; ++i) threads_.push_back(start_signal_free_thread([this] { work(); }));
}

Rail::~Rail() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    tasks_.clear();
    changed_.notify_all();
  }
  for (auto& thread : threads_) thread.join();
}

std::uint64_t Rail::post(Task task) {
  const std::lock_guard lock(mutex_);
  if (!failure_) tasks_.push_back(std::move(task));
  changed_.notify_all();
  return ++posted_;
}

bool Rail::done(std::uint64_t tasks) const {
  return begun_ >= tasks && std::ranges::none_of(running_, [&](auto number) { return number <= tasks; });
}

void Rail::await(std::uint64_t tasks) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || done(tasks); });
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
    const auto number = ++begun_;
    running_.push_back(number);
    lock.unlock();
    std::exception_ptr failure;
    try {
      task(*transport_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    std::erase(running_, number);
    if (failure && !failure_) {
      failure_ = failure;
      tasks_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace ddprun::comm
