#pragma once

#include <atomic>
#include <cstdint>

#include "ddprun/common/deadline.h"

namespace ddprun::comm {

// How long to wait awake. More ranks than cores: hardly at all, for whoever spins keeps away whom it waits for.
struct Patience {
  int spins = 0;   // with the processor's pause
  int yields = 0;  // of the core, before sleeping
  static Patience for_ranks(int ranks);
};

// Whether a rank still takes part: kept in shared memory, so that others learn at once when it does not.
enum class Presence : std::uint32_t { here, left, broken };

// What ends a wait before its time.
struct WaitLimits {
  const std::atomic<bool>& interrupted;
  const std::atomic<Presence>& peer;  // whoever is waited for
  Patience patience;
  Deadline deadline;
};

// A counter in memory that processes share: its owner raises it, others wait until it has come far enough. Values are
// compared by their distance, so that wrapping around does no harm. Memory that is all zero is a counter at zero.
//
// What its owner wrote before raising is visible to whoever saw the new value (release, acquire). Sleepers use the
// kernel's futex, and announce themselves before they look a last time, as the owner looks for them after it raised:
// both sides in the one order of sequentially consistent operations, so that one of them sees the other.
class SignalWord {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool reached(std::uint32_t target) const { return static_cast<std::int32_t>(value() - target) >= 0; }

  void raise(std::uint32_t by = 1);
  // Returns once the counter has reached target. Throws std::runtime_error when interrupted, when the peer's group is
  // broken or it left before it came so far, and past the deadline.
  void await(std::uint32_t target, const WaitLimits& limits);
  // The same, but false past the deadline.
  bool await_before(std::uint32_t target, const WaitLimits& limits);
  // Whether the counter has reached target, after as many looks as there is patience for; without a sleep.
  bool awake_until(std::uint32_t target, const Patience& patience) const;
  // Returns once the counter has reached target, or after a nap: for waits with further reasons to end.
  void rest(std::uint32_t target, const Patience& patience);
  // Lets sleepers look at their limits.
  void wake() noexcept;

 private:
  void sleep_once(std::uint32_t target);

  std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleepers_;  // one that is killed stays counted: it costs needless wake-ups, nothing else
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(SignalWord) == 8);

}  // namespace ddprun::comm
