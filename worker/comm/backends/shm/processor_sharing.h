#pragma once

#include <chrono>

#include "worker/comm/backends/shm/last_processor.h"
#include "worker/comm/backends/shm/segment_layout.h"

namespace ddprun::comm {

// Finds out whether a rank that waits runs on the processor of the rank that it waits for, where spinning would keep
// that one from running, and moves the waiting thread to another processor if there is one. Where all processors have
// work, the kernel places ranks so and leaves them there: two ranks beside ten busy processes took 350 us for an
// allreduce of 64 KiB on one processor, 18 us on two.
//
// A thread that has moved has the affinity mask that it had before. References the layout. One thread at a time.
class ProcessorSharing {
 public:
  ProcessorSharing(const SegmentLayout& layout, int rank) : layout_(layout), own_(layout.rank(rank).processor) {}

  // Tells the others where the calling thread runs: before it does anything that they wait for.
  void record_own() { own_.record(); }
  // Returns whether the calling thread may go on spinning while it waits for that peer: the peer is not known to run on
  // the same processor, or this thread has moved away.
  bool may_spin(const LastProcessor& peer);

 private:
  using Clock = std::chrono::steady_clock;
  // The kernel may bring the ranks together again: a thread that moved each time would do nothing else.
  static constexpr std::chrono::milliseconds move_interval{10};

  bool move_away();

  const SegmentLayout& layout_;
  LastProcessor& own_;
  Clock::time_point next_move_ = Clock::time_point::min();
};

}  // namespace ddprun::comm
