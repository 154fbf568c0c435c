#pragma once

#include <atomic>
#include <chrono>

namespace ddprun::comm {

// Whether the callers of a group's works come to wait for them as soon as they are queued, and so carry them out
// themselves: guessed from the last ones. Thread-safe.
class SyncWaitPredictor {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds at_once{50};
  static constexpr int trials = 8;  // in succession

  void note(Clock::duration after) {
    const int seen = in_succession_.load(std::memory_order_relaxed);
    if (after >= at_once) return forget();
    if (seen < trials) in_succession_.store(seen + 1, std::memory_order_relaxed);
  }
  void forget() { in_succession_.store(0, std::memory_order_relaxed); }
  bool expected() const { return in_succession_.load(std::memory_order_relaxed) >= trials; }

 private:
  std::atomic<int> in_succession_ = 0;
};

}  // namespace ddprun::comm
