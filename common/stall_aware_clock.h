#pragma once

#include <chrono>

namespace ddprun {

// A clock for the ages of heartbeats that advances only while this process runs. Without it, a process that was
// stopped, swapped out or starved would take the heartbeats that it has not read yet for missing ones.
//
// A value; the owner calls advance() with the time at least once every `period`. Threads: not thread-safe. Errors:
// none.
class StallAwareClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  explicit StallAwareClock(Duration period) : period_(period) {}

  // A gap of more than two periods is a stall and counts as one period.
  void advance(Clock::time_point now) {
    const Duration gap = started_ ? now - last_ : Duration::zero();
    const bool on_time = gap <= 2 * period_;
    elapsed_ += on_time ? gap : period_;
    if (!on_time) reliable_from_ = elapsed_ + period_;
    started_ = true;
    last_ = now;
  }

  // Returns false for one period after a stall: heartbeats that arrived meanwhile have to be read before any peer is
  // declared lost.
  bool reliable() const { return elapsed_ >= reliable_from_; }
  // The time since the first advance(), without stalls.
  Duration elapsed() const { return elapsed_; }

 private:
  Duration period_;
  Duration elapsed_{};
  Duration reliable_from_{};
  Clock::time_point last_{};
  bool started_ = false;
};

}  // namespace ddprun
