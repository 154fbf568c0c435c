#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace ddprun::comm {

// Decides whether a peer is frozen or cut off: its heartbeat counter has not changed for the bound, by the observer's
// clock. An observer that did not look for half the bound may itself have been frozen, and starts over. No I/O.
class FreezeDetector {
 public:
  using Clock = std::chrono::steady_clock;

  explicit FreezeDetector(Clock::duration bound) : bound_(bound) {}

  // Notes the peer's counter as of now; none if it has not published one yet, which is not silence.
  void look(std::optional<std::uint64_t> beats, Clock::time_point now) {
    const bool looked_away = now - last_look_ >= bound_ / 2;
    if (!beats || beats != beats_ || looked_away) since_ = now;
    beats_ = beats;
    last_look_ = now;
  }
  // All of these are as of the last look.
  bool suspicious() const { return silence() >= bound_ / 2; }
  bool frozen() const { return silence() >= bound_; }
  Clock::duration silence() const { return last_look_ - since_; }
  Clock::duration left() const { return bound_ - silence(); }  // REQUIRES !frozen()
  // Starts over, for another peer.
  void restart() { beats_.reset(); }

 private:
  const Clock::duration bound_;
  std::optional<std::uint64_t> beats_;
  Clock::time_point since_;  // the first look that saw this counter
  Clock::time_point last_look_;
};

}  // namespace ddprun::comm
