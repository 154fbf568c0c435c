#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/stall_aware_clock.h"

namespace ddprun::comm {

// Decides whether a peer is frozen or cut off: its heartbeat counter has not changed for the bound, by a clock that
// leaves out the time in which the observer itself did not run, since what stops one, a busy machine or one that was
// suspended, may stop the other as well. No I/O.
class FreezeDetector {
 public:
  using Clock = StallAwareClock::Clock;

  // interval: the time between two looks of an observer that runs.
  FreezeDetector(Clock::duration bound, Clock::duration interval) : bound_(bound), clock_(interval) {}

  // Notes the peer's counter as of now; none if it has not published one yet, which is not silence.
  void look(std::optional<std::uint64_t> beats, Clock::time_point now) {
    clock_.advance(now);
    if (!beats || beats != beats_) since_ = clock_.elapsed();
    beats_ = beats;
  }
  // All of these are as of the last look.
  bool suspicious() const { return silence() >= bound_ / 2; }
  bool frozen() const { return silence() >= bound_; }
  Clock::duration silence() const { return clock_.elapsed() - since_; }
  Clock::duration left() const { return bound_ - silence(); }  // REQUIRES !frozen()
  // Starts over, for another peer.
  void restart() { beats_.reset(); }

 private:
  const Clock::duration bound_;
  StallAwareClock clock_;
  std::optional<std::uint64_t> beats_;
  Clock::duration since_{};  // the first look that saw this counter
};

}  // namespace ddprun::comm
