#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ddprun/common/deadline.h"
#include "ddprun/worker/comm/backends/shm/segment_layout.h"

namespace ddprun::comm {

// The step in which the ranks of a SegmentLayout go through an operation together.
//
// An operation is a sequence of phases, the same at every rank. In a phase a rank writes its own slot of the phase's
// parity and reads what others wrote in the phase before; then it raises its counter. It begins the next phase once all
// counters have come that far. So a slot is written again two phases later, when everybody has read it.
//
// Blocking; throws std::runtime_error when interrupted or past the deadline. That all ranks call the same is for others
// to know (AnnouncementRing).
class Phases {
 public:
  Phases(const SegmentLayout& board, int rank, const std::atomic<bool>& interrupted)
      : board_(board), rank_(rank), interrupted_(interrupted), patience_(board.patience()) {}

  // What follows is to be done by then.
  void enter(Deadline deadline) { deadline_ = deadline; }

  // The one that is under way, or begins next.
  std::uint32_t current() const { return phase_; }
  void begin() { await_all(); }
  void end();
  // Until every rank has completed as many phases as this one.
  void await_all();

  // Whether this rank may do its part of the next phase before it knows that all have completed the last: they have, or
  // what they may still be reading there lies in slots of the other parity. So it does behind a pipeline of an odd
  // number of stages, whose last phase reads what was written that many phases before the next.
  bool may_go_ahead() const;
  // Does it: first(phase) is the first stage of a pipeline's first chunk, which goes on from there.
  template <class First>
  void go_ahead(First first) {
    first(phase_);
    end();
    ahead_ = true;
  }

  // Runs stage(s, c, phase) for stage s of chunk c in phase c + s, so that all stages are under way at once, each on a
  // chunk of its own. A stage finds what the stage before it wrote in the slots of its chunk's parity, which is that of
  // the phase it is given.
  template <class Stage>
  void pipeline(std::size_t chunks, std::size_t stages, Stage stage) {
    for (std::size_t step = std::exchange(ahead_, false) ? 1 : 0; step < chunks + stages - 1; ++step) {
      begin();
      for (std::size_t s = 0; s < stages; ++s) {
        if (step < s || step - s >= chunks) continue;
        stage(s, step - s, phase_ - static_cast<std::uint32_t>(s));
      }
      end();
    }
    read_other_parity_ = stages % 2 == 1;
  }

  // Lets sleepers look at what interrupts them.
  void wake() noexcept;

 private:
  const SegmentLayout& board_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const SpinPolicy patience_;

  std::uint32_t phase_ = 0;         // completed
  bool ahead_ = false;              // the next pipeline's first step is done
  bool read_other_parity_ = false;  // the last phase, than what the next one writes
  Deadline deadline_ = Deadline::never();
};

}  // namespace ddprun::comm
