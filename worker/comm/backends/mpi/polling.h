#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <sched.h>
#include <thread>

#include "worker/comm/execution/yield.h"

namespace ddprun::comm {

// The steps of a thread between two tests of a request: it polls for half a millisecond, unless another thread wants
// its core, then leaves the core to others, then sleeps for longer and longer, as a peer may compute for seconds. The
// more threads wait, the longer they sleep, as each one's test progresses the requests of all. waiters: their number,
// shared by them. One thread uses an object.
class Polling {
 public:
  explicit Polling(std::atomic<int>& waiters) : waiters_(waiters) { ++waiters_; }
  ~Polling() { --waiters_; }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;

  void pause() {
    const int waiters = waiters_.load(std::memory_order_relaxed);
    if (waiters == 1 && alone_ && polls_ < most_polls) {
      if (++polls_ % polls_between_yields == 0) alone_ = yield_returns_at_once();
      return;
    }
    if (waiters <= 2 && yields_ < most_yields) {
      ++yields_;
      if (yield_processor()) return;
    }
    std::this_thread::sleep_for(sleep_ * waiters);
    sleep_ = std::min(2 * sleep_, longest);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int most_polls = 8000, polls_between_yields = 64, most_yields = 200;
  static constexpr std::chrono::microseconds longest{200};

  // Returns whether no other thread ran meanwhile: a switch there and back takes longer.
  static bool yield_returns_at_once() {
    const auto start = Clock::now();
    ::sched_yield();
    return Clock::now() - start < std::chrono::microseconds(2);
  }

  std::atomic<int>& waiters_;
  bool alone_ = true;
  int polls_ = 0, yields_ = 0;
  std::chrono::microseconds sleep_{20};
};

}  // namespace ddprun::comm
