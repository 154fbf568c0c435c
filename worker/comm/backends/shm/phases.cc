#include "ddprun/worker/comm/backends/shm/phases.h"

namespace ddprun::comm {

bool Phases::may_go_ahead() const {
  if (read_other_parity_) return true;
  for (int r = 0; r < board_.ranks(); ++r)
    if (r != rank_ && !board_.rank(r).phase.reached(phase_)) return false;
  return true;
}

void Phases::end() {
  board_.rank(rank_).phase.raise();
  ++phase_;
  read_other_parity_ = false;
}

void Phases::await_all() {
  for (int r = 0; r < board_.ranks(); ++r) {
    if (r == rank_ || phase_ == 0) continue;
    auto& other = board_.rank(r);
    other.phase.await(phase_, {interrupted_, other.presence, patience_, deadline_});
  }
}

void Phases::wake() noexcept {
  for (int r = 0; r < board_.ranks(); ++r) board_.rank(r).phase.wake();
}

}  // namespace ddprun::comm
