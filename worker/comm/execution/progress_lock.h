#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ddprun::comm {

// A mutex (Lockable) whose release is a plain store. A std::mutex is released by an atomic exchange, which on many
// processors waits until all stores before it are done: that of a small operation's announcement takes as long as the
// operation.
//
// So whoever releases it may overlook one who comes to sleep at that moment; that one looks again after a short nap.
// And it has to outlive every unlock(), not just the lock.
class ProgressLock {
 public:
  // first_nap: of who comes to sleep. Ends soon after a release that overlooked it; who releases later sees it.
  explicit ProgressLock(std::chrono::microseconds first_nap = std::chrono::microseconds(50)) : first_nap_(first_nap) {}

  bool try_lock() {
    return !taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire);
  }
  void lock() {
    if (!try_lock()) sleep_until_locked();
  }
  void unlock() {
    taken_.store(false, std::memory_order_release);
    if (awaited()) wake_sleeper();
  }
  // Whether somebody sleeps for it, or is about to.
  bool awaited() const { return sleepers_.load(std::memory_order_relaxed) != 0; }

 private:
  void sleep_until_locked();
  void wake_sleeper();

  const std::chrono::microseconds first_nap_;
  std::atomic<bool> taken_ = false;
  std::atomic<int> sleepers_ = 0;  // changed under mutex_
  std::mutex mutex_;
  std::condition_variable released_;
};

}  // namespace ddprun::comm
