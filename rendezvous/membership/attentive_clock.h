#pragma once

#include <chrono>

namespace ddprun {

// Time in which this process was able to listen. Ages of heartbeats are counted in it, so that a process which was
// itself stopped, swapped out or late does not condemn every peer at once when it comes back. No clock inside:
// advance() is told the time, and has to be called at least once every `period` while the process is able to.
class AttentiveClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  explicit AttentiveClock(Duration period) : period_(period) {}

  // A gap of more than two periods counts as one.
  void advance(Clock::time_point now) {
    const Duration gap = started_ ? now - last_ : Duration::zero();
    const bool on_time = gap <= 2 * period_;
    elapsed_ += on_time ? gap : period_;
    if (!on_time) fair_from_ = elapsed_ + period_;
    started_ = true;
    last_ = now;
  }

  // False for one period after a gap: what has piled up meanwhile has to be read before anybody is judged.
  bool fair() const { return elapsed_ >= fair_from_; }
  Duration elapsed() const { return elapsed_; }

 private:
  Duration period_;
  Duration elapsed_{};
  Duration fair_from_{};
  Clock::time_point last_{};
  bool started_ = false;
};

}  // namespace ddprun
