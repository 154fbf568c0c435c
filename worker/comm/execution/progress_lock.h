#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ddprun::comm {

// A mutex (Lockable) that is released by a plain store. A std::mutex is released by an atomic exchange, which on many
// processors waits until all earlier stores are visible: for a small collective's announcement this takes as long as
// the collective.
//
// The releasing thread may therefore miss a thread that goes to sleep at the same time, which checks again after a
// short sleep. The lock has to outlive every unlock() call.
class ProgressLock {
 public:
  // first_sleep: the time of a waiter's first sleep. A release that missed it happened just before; later ones wake it.
  explicit ProgressLock(std::chrono::microseconds first_sleep = std::chrono::microseconds(50))
      : first_sleep_(first_sleep) {}

  bool try_lock() {
    return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire);
  }
  void lock() {
    if (!try_lock()) sleep_until_locked();
  }
  void unlock() {
    taken_.store(false, std::memory_order_release);
    if (has_waiter()) wake_waiter();
  }
  // Returns whether a thread sleeps until it is released, or is about to.
  bool has_waiter() const { return waiters_.load(std::memory_order_relaxed) != 0; }

 private:
  void sleep_until_locked();
  void wake_waiter();

  const std::chrono::microseconds first_sleep_;
  std::atomic<bool> taken_ = false;
  std::atomic<int> waiters_ = 0;  // changed under mutex_
  std::mutex mutex_;
  std::condition_variable released_;
};

}  // namespace ddprun::comm
