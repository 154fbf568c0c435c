#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ddprun/common/deadline.h"
#include "ddprun/worker/comm/shm/board.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// The step in which the ranks of a Board go through an operation together.
//
// An operation is a sequence of phases, the same at every rank. In a phase a rank writes its own slot of the phase's
// parity and reads what others wrote in the phase before; then it raises its counter. It begins the next phase once all
// counters have come that far. So a slot is written again two phases later, when everybody has read it.
//
// Blocking; throws std::runtime_error when interrupted, past the deadline, or when another rank calls something else.
class Phases {
 public:
  Phases(const Board& board, int rank, const std::atomic<bool>& interrupted)
      : board_(board), rank_(rank), interrupted_(interrupted), patience_(board.patience()) {}

  // What follows belongs to this operation.
  void enter(const Collective& collective);

  // The one that is under way, or begins next.
  std::uint32_t current() const { return phase_; }
  void begin() { await_all(); }
  void end();
  // Until every rank has completed as many phases as this one.
  void await_all();

  // Runs stage(s, c, phase) for stage s of chunk c in phase c + s, so that all stages are under way at once, each on a
  // chunk of its own. A stage finds what the stage before it wrote in the slots of its chunk's parity, which is that of
  // the phase it is given.
  template <class Stage>
  void pipeline(std::size_t chunks, std::size_t stages, Stage stage) {
    for (std::size_t step = 0; step < chunks + stages - 1; ++step) {
      begin();
      for (std::size_t s = 0; s < stages; ++s) {
        if (step < s || step - s >= chunks) continue;
        stage(s, step - s, phase_ - static_cast<std::uint32_t>(s));
      }
      end();
    }
  }

  // Lets sleepers look at what interrupts them.
  void wake() noexcept;

 private:
  const Board& board_;
  const int rank_;
  const std::atomic<bool>& interrupted_;
  const Patience patience_;

  std::uint32_t phase_ = 0;  // completed
  std::uint64_t call_ = 0;
  Deadline deadline_ = Deadline::never();
};

}  // namespace ddprun::comm
