#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/deadline.h"
#include "worker/comm/backends/shm/processor_sharing.h"
#include "worker/comm/backends/shm/segment_layout.h"

namespace ddprun::comm {

// Synchronizes the ranks of a SegmentLayout in an operation that moves data through their staging slots.
//
// An operation is a sequence of phases, the same at every rank. In a phase a rank writes its own slot of the phase's
// parity and reads what the others wrote in the phase before; then it increments its counter. It begins the next phase
// once all counters have reached this one. So a slot is written again two phases later, when all ranks have read it.
//
// Its calls block; one thread at a time makes them. It throws std::runtime_error when interrupted or past the deadline.
// AnnouncementRing has checked before that all ranks call the same operation.
class Phases {
 public:
  Phases(const SegmentLayout& layout, int rank, const std::atomic<bool>& interrupted, ProcessorSharing& sharing)
      : layout_(layout),
        rank_(rank),
        interrupted_(interrupted),
        spin_policy_(layout.spin_policy()),
        sharing_(sharing) {}

  // Sets the deadline of all later calls.
  void set_deadline(Deadline deadline) { deadline_ = deadline; }

  // The phase that is in progress, or begins next.
  std::uint32_t current() const { return completed_; }
  void begin() { await_all(); }
  void end();
  // Waits until every rank has completed as many phases as this one.
  void await_all();

  // Returns whether this rank may do its part of the next phase before it knows that all ranks have completed the last
  // one: either they have, or what they may still be reading lies in slots of the other parity. The latter holds after
  // a pipeline with an odd number of stages, whose last phase reads what was written that many phases before the next.
  bool can_start_early() const;
  // Does that part: first(phase) is the first stage of the first chunk of a pipeline, which continues from there.
  template <class First>
  void start_early(First first) {
    first(completed_);
    end();
    started_early_ = true;
  }

  // Runs stage(s, c, phase) for stage s of chunk c in phase c + s: all stages are in progress at once, each on its own
  // chunk. A stage finds what the stage before it wrote in the slots of its chunk's parity, which is that of the phase
  // it is given.
  // Between its announcement of a phase and the wait for those of the others, a rank runs between(c) for the chunk c
  // that was in the first stage: work that needs no peer costs no time while the announcements travel.
  template <class Stage, class Between>
  void pipeline(std::size_t chunks, std::size_t stages, Stage stage, Between between) {
    for (std::size_t step = std::exchange(started_early_, false) ? 1 : 0; step < chunks + stages - 1; ++step) {
      begin();
      for (std::size_t s = 0; s < stages; ++s) {
        if (step < s || step - s >= chunks) continue;
        stage(s, step - s, completed_ - static_cast<std::uint32_t>(s));
      }
      end();
      if (step < chunks) between(step);
    }
    last_read_other_parity_ = stages % 2 == 1;
  }
  template <class Stage>
  void pipeline(std::size_t chunks, std::size_t stages, Stage stage) {
    pipeline(chunks, stages, stage, [](std::size_t) {});
  }

  // Wakes all sleepers, so that they check whether they are interrupted.
  void wake() noexcept;

 private:
  const SegmentLayout& layout_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const SpinPolicy spin_policy_;
  ProcessorSharing& sharing_;

  std::uint32_t completed_ = 0;          // phases
  bool started_early_ = false;           // the first step of the next pipeline is done
  bool last_read_other_parity_ = false;  // the last phase read slots of the parity that the next one does not write
  Deadline deadline_ = Deadline::never();
};

}  // namespace ddprun::comm
