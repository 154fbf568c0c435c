#include "worker/comm/backends/shm/phases.h"

namespace ddprun::comm {

bool Phases::can_start_early() const {
  if (last_read_other_parity_) return true;
  for (int r = 0; r < layout_.ranks(); ++r)
    if (r != rank_ && !layout_.rank(r).phases.reached(completed_)) return false;
  return true;
}

void Phases::end() {
  sharing_.record_own();
  layout_.rank(rank_).phases.increment();
  ++completed_;
  last_read_other_parity_ = false;
}

void Phases::await_all() {
  for_each_peer(layout_.ranks(), rank_, [&](int r) {
    auto& peer = layout_.rank(r);
    peer.phases.wait(completed_,
                     {interrupted_, peer.peer_state, WaitingRanks{sharing_, peer.processor}, spin_policy_, deadline_});
  });
}

void Phases::wake() noexcept {
  for (int r = 0; r < layout_.ranks(); ++r) layout_.rank(r).phases.wake();
}

}  // namespace ddprun::comm
