#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sched.h>
#include <thread>

namespace ddprun::comm {

// What a thread does between two tests of a request: it polls, then leaves the core to others, then sleeps for longer
// and longer, as a peer may compute for seconds. The more threads wait, the longer they sleep, as each one's test moves
// the requests of all. waiters: their number, shared by them. One thread.
class Polling {
 public:
  explicit Polling(std::atomic<int>& waiters) : waiters_(waiters) { ++waiters_; }
  ~Polling() { --waiters_; }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

  void pause() {
    const int waiters = waiters_.load(std::memory_order_relaxed);
    if (++count_ <= polls && waiters == 1) return;
    if (count_ <= polls + yields && waiters <= 2) {
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(sleep_ * waiters);
    sleep_ = std::min(2 * sleep_, longest);
  }

 private:
  static constexpr int polls = 50, yields = 200;
  static constexpr std::chrono::microseconds longest{200};

  std::atomic<int>& waiters_;
  int count_ = 0;
  std::chrono::microseconds sleep_{20};
};

}  // namespace ddprun::comm
