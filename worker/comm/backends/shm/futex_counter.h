#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <optional>

#include "common/deadline.h"
#include "worker/comm/backends/shm/last_processor.h"

namespace ddprun::comm {

// The time for which a waiting thread stays awake before it sleeps. With more threads than processors it yields at
// once, because a spinning thread would keep the thread that it waits for off the processor.
struct SpinPolicy {
  int spins = 0;   // loads with a processor pause between them
  int yields = 0;  // yields after that, at most: see YieldDecision
  static SpinPolicy for_threads(int threads, int processors);
};

// Tells whether a rank still takes part. It is in shared memory, so that peers notice at once when it no longer does.
enum class PeerState : std::uint32_t { present, left, broken };

class ProcessorSharing;

// Where the two ranks of a wait run: the one that waits, and the one that it waits for.
struct WaitingRanks {
  ProcessorSharing& own;
  const LastProcessor& peer;
};

// A blocking call begins to wait for its message some microseconds after the thread that exchanges it.
inline constexpr int spins_before_await = 256;

// A wait for a peer within the send or receive of a message. It spins only if that keeps no other thread from running:
// while the program waits for the message, and the rank exchanges no other one.
struct MessageWait {
  const std::atomic<int>& messages;  // those that the rank exchanges now
  const std::atomic<bool>* awaited;  // false while no thread of the program waits for the message; null: one may wait

  bool is_alone() const { return messages.load(std::memory_order_relaxed) == 1; }
  bool is_awaited() const { return awaited == nullptr || awaited->load(std::memory_order_relaxed); }
};

// How a wait stays awake, and the conditions that end it early.
struct WaitLimits {
  const std::atomic<bool>& interrupted;
  const std::atomic<PeerState>& peer;  // the rank that is waited for
  std::optional<WaitingRanks> ranks;   // none: it spins wherever they run
  SpinPolicy spin_policy;
  Deadline deadline;
  std::optional<MessageWait> message = {};  // none: it is a collective's wait
};

// A counter in memory shared by processes: its owner increments it, others wait until it reaches a target. Values are
// compared by their distance, so wrapping around is harmless. Zeroed memory is a counter at zero.
//
// The owner's writes before an increment are visible to every thread that saw the new value (release, acquire).
// Sleepers use the kernel's futex and are counted while they sleep; the owner reads that count after each increment.
// There is no fence between the owner's store and that load, because a fence would cost the owner the time in which the
// cache line moves to the waiters. The owner may therefore miss a thread that goes to sleep at that moment; such a
// thread checks again, because its first sleep is short.
class FutexCounter {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool reached(std::uint32_t target) const { return static_cast<std::int32_t>(value() - target) >= 0; }

  // Only the owner may call it; one thread at a time.
  void increment() {
    value_.store(value_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    wake_sleepers();
  }
  // Any process and thread may call it; misses no sleeper.
  void increment_shared() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  // Returns once the counter has reached target. Throws std::runtime_error when interrupted, when the peer broke the
  // group or left before it reached target, and past the deadline.
  void wait(std::uint32_t target, const WaitLimits& limits);
  // Does the same, but returns false past the deadline.
  bool try_wait(std::uint32_t target, const WaitLimits& limits);
  // Returns whether the counter reached target while spinning as long as the policy allows; never sleeps. It yields
  // instead of spinning where both ranks run on the same processor.
  bool spin(std::uint32_t target, const SpinPolicy& policy, const std::optional<WaitingRanks>& ranks) const {
    return reached(target) || spin_loop(target, policy, ranks);
  }
  // Does the same for a message, as long as it may spin.
  bool spin(std::uint32_t target, const SpinPolicy& policy, const MessageWait& message) const;
  // Returns once the counter has reached target, or after a short sleep: for callers that wait for other events too.
  // Only for counters that are incremented by increment_shared().
  void wait_briefly(std::uint32_t target, const SpinPolicy& policy, const MessageWait& message);
  // Wakes all sleepers, so that they check their limits.
  void wake() noexcept;

 private:
  bool spin_loop(std::uint32_t target, const SpinPolicy& policy, const std::optional<WaitingRanks>& ranks) const;
  bool stay_awake(std::uint32_t target, const WaitLimits& limits) const;
  void wake_sleepers() {
    if (sleepers_.load(std::memory_order_relaxed) != 0) wake();
  }
  void sleep(std::uint32_t target, const timespec& longest);

  std::atomic<std::uint32_t> value_;
  std::atomic<std::uint32_t> sleepers_;  // a killed sleeper stays counted: that costs needless wake-ups, nothing else
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(FutexCounter) == 8);

}  // namespace ddprun::comm
