#pragma once

#include <atomic>
#include <chrono>

namespace ddprun::comm {

// Predicts whether the callers wait for their queued works at once, and so execute them themselves, from how they
// waited for the last ones. Thread-safe.
class SyncWaitPredictor {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds at_once{50};
  static constexpr int required = 8;  // prompt waits in succession

  // A caller waited for its work that long after it was queued.
  void note(Clock::duration after) {
    const int seen = in_succession_.load(std::memory_order_relaxed);
    if (after >= at_once) return forget();
    if (seen < required) in_succession_.store(seen + 1, std::memory_order_relaxed);
  }
  void forget() { in_succession_.store(0, std::memory_order_relaxed); }
  bool expected() const { return in_succession_.load(std::memory_order_relaxed) >= required; }

 private:
  std::atomic<int> in_succession_ = 0;
};

}  // namespace ddprun::comm
