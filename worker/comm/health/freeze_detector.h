#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace ddprun::comm {

// Decides when a peer's silence means that it is frozen or cut off: its counter of heartbeats has stood still for the
// bound, by the clock of whoever looks. A watcher that did not look for half the bound may itself have been frozen, and
// begins anew. No I/O.
class FreezeDetector {
 public:
  using Clock = std::chrono::steady_clock;

  explicit FreezeDetector(Clock::duration bound) : bound_(bound) {}

  // Looked at now; none: the peer has not shown itself yet, which is no silence.
  void look(std::optional<std::uint64_t> beats, Clock::time_point now);
  // As of the last look.
  bool suspicious() const { return silence() >= bound_ / 2; }
  bool frozen() const { return silence() >= bound_; }
  Clock::duration silence() const { return last_look_ - since_; }
  Clock::duration left() const { return bound_ - silence(); }  // REQUIRES !frozen()
  // For another peer.
  void restart() { beats_.reset(); }

 private:
  const Clock::duration bound_;
  std::optional<std::uint64_t> beats_;
  Clock::time_point since_;  // the first look at which it had this many
  Clock::time_point last_look_;
};

}  // namespace ddprun::comm
