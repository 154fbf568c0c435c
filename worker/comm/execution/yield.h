#pragma once

#include <chrono>

namespace ddprun::comm {

// Decides whether the waits of a thread yield the processor. Where others compute, the scheduler (EEVDF, Linux 6.6 and
// later) moves a thread behind all of them each time that it yields, so that it may not run for many milliseconds after
// its wait is over; one that sleeps runs soon after it is woken. So after a yield that has lasted the next waits sleep
// at once, and then one tries again.
//
// A value. Threads: one at a time. Errors: none.
class YieldDecision {
 public:
  // A yield between threads that all wait takes less, also with some switches.
  static constexpr std::chrono::microseconds longest{100};
  static constexpr int waits_without = 200;

  // To be called before each yield.
  bool may_yield() {
    if (left_without_ == 0) return true;
    --left_without_;
    return false;
  }
  // To be called after it. Returns whether the wait may yield again.
  bool has_yielded(std::chrono::nanoseconds duration) {
    if (duration > longest) left_without_ = waits_without;
    return duration <= longest;
  }

 private:
  int left_without_ = 0;
};

// Lets other threads have this processor, if the calling thread's decision is to yield. Returns false if the wait that
// it is part of should sleep instead.
bool yield_processor();

}  // namespace ddprun::comm
