#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ddprun::comm {

// A mutex for what is mostly tried and rarely waited for: it is given back by a plain store, which does not wait until
// the holder's other stores have reached the caches. Whoever comes to wait at that moment may be overlooked, as the
// store and the look for waiters are not ordered: its first nap is short, and behind it one of the two has seen the
// other.
class BriskMutex {
 public:
  bool try_lock() { return !held_.load(std::memory_order_relaxed) && !held_.exchange(true, std::memory_order_acquire); }
  void unlock() {
    held_.store(false, std::memory_order_release);
    if (waiters_.load(std::memory_order_relaxed) > 0) wake();
  }
  void lock() {
    if (!try_lock()) wait();
  }

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiters_;
    for (std::chrono::microseconds nap{50}; !try_lock(); nap = std::chrono::milliseconds(20))
      changed_.wait_for(lock, nap);
    --waiters_;
  }
  void wake() {
    { const std::lock_guard lock(mutex_); }  // a waiter has looked before, or is asleep
    changed_.notify_one();
  }

  std::atomic<bool> held_ = false;
  std::atomic<int> waiters_ = 0;
  std::mutex mutex_;  // of the waiters
  std::condition_variable changed_;
};

}  // namespace ddprun::comm
