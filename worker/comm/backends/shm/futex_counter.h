#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "ddprun/common/deadline.h"

namespace ddprun::comm {

// How long to wait awake. More threads at work than cores: the core is given away at once, for whoever spins keeps away
// whom it waits for.
struct SpinPolicy {
  int spins = 0;   // with the processor's pause
  int yields = 0;  // of the core, before sleeping
  static SpinPolicy for_threads(int threads, int processors);
};

// Whether a rank still takes part: kept in shared memory, so that others learn at once when it does not.
enum class PeerState : std::uint32_t { here, left, broken };

// What ends a wait before its time.
struct WaitLimits {
  const std::atomic<bool>& interrupted;
  const std::atomic<PeerState>& peer;  // whoever is waited for
  SpinPolicy patience;
  Deadline deadline;
};

// A counter in memory that processes share: its owner raises it, others wait until it has come far enough. Values are
// compared by their distance, so that wrapping around does no harm. Memory that is all zero is a counter at zero.
//
// What its owner wrote before raising is visible to whoever saw the new value (release, acquire). Sleepers use the
// kernel's futex and count themselves while they wait, for the owner to look at once it has raised. Between its store
// and that look the owner puts no fence, which would cost it the time in which the others give the cache line away: it
// may overlook one who comes to sleep at that moment. That one's first nap is short, and it looks again after it.
class FutexCounter {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool reached(std::uint32_t target) const { return static_cast<std::int32_t>(value() - target) >= 0; }

  // By its owner, one thread at a time.
  void raise() {
    value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    wake_sleepers();
  }
  // By anybody; overlooks nobody.
  void raise_as_one_of_many() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  // Returns once the counter has reached target. Throws std::runtime_error when interrupted, when the peer's group is
  // broken or it left before it came so far, and past the deadline.
  void await(std::uint32_t target, const WaitLimits& limits);
  // The same, but false past the deadline.
  bool await_before(std::uint32_t target, const WaitLimits& limits);
  // Whether the counter has reached target, after as many looks as there is patience for; without a sleep.
  bool awake_until(std::uint32_t target, const SpinPolicy& patience) const {
    return reached(target) || look_until(target, patience);
  }
  // Returns once the counter has reached target, or after a nap: for waits with further reasons to end. Of a counter
  // that many raise.
  void rest(std::uint32_t target, const SpinPolicy& patience);
  // Lets sleepers look at their limits.
  void wake() noexcept;

 private:
  bool look_until(std::uint32_t target, const SpinPolicy& patience) const;
  void wake_sleepers() {
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }
  void sleep(std::uint32_t target, const timespec& longest);

  std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleepers_;  // one that is killed stays counted: it costs needless wake-ups, nothing else
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(FutexCounter) == 8);

}  // namespace ddprun::comm
