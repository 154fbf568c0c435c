#include "ddprun/worker/comm/execution/cached_thread_pool.h"

#include <utility>

#include "ddprun/common/blocked_signals.h"

namespace ddprun::comm {

void CachedThreadPool::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (auto& thread : std::exchange(threads_, {})) thread.join();
}

void CachedThreadPool::run(Task task) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= idle_) threads_.push_back(start_signal_free_thread([this] { work(); }));
  tasks_.push_back(std::move(task));
  changed_.notify_one();
}

void CachedThreadPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    --idle_;
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace ddprun::comm
