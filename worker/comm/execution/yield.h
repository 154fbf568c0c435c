#pragma once

#include <chrono>
#include <sched.h>

namespace ddprun::comm {

// Lets other threads have this processor, and returns whether the wait that it is part of may go on so. False: others
// compute here, and the wait should sleep. The scheduler (EEVDF, Linux 6.6 and later) moves a thread behind all of them
// each time that it yields, so that it may not run for many milliseconds after its wait is over; one that sleeps runs
// soon after it is woken. After such a yield the thread's next calls return false at once: a step has many waits.
inline bool yield_processor() {
  constexpr std::chrono::microseconds longest(100);  // more than some switches between threads that wait, too
  constexpr int calls_without = 200;
  thread_local int left_without = 0;
  if (left_without > 0) {
    --left_without;
    return false;
  }
  const auto before = std::chrono::steady_clock::now();
  ::sched_yield();
  if (std::chrono::steady_clock::now() - before < longest) return true;
  left_without = calls_without;
  return false;
}

}  // namespace ddprun::comm
