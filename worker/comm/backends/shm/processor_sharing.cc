#include "worker/comm/backends/shm/processor_sharing.h"

#include <sched.h>

namespace ddprun::comm {

bool ProcessorSharing::may_spin(const LastProcessor& peer) {
  return own_.record() != peer.number() || move_away();
}

// Lets the kernel choose among the processors on which no rank of the group ran last; it does not look for an idle one.
// A mask that somebody else has set meanwhile stays.
bool ProcessorSharing::move_away() {
  const auto now = Clock::now();
  if (now < next_move_) return false;
  next_move_ = now + move_interval;
  cpu_set_t allowed, found;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  cpu_set_t free = allowed;
  for (int r = 0; r < layout_.ranks(); ++r)
    if (const auto number = layout_.rank(r).processor.number()) CPU_CLR(static_cast<std::size_t>(*number), &free);
  if (CPU_COUNT(&free) == 0 || ::sched_setaffinity(0, sizeof(free), &free) != 0) return false;
  own_.record();
  const bool still_free = ::sched_getaffinity(0, sizeof(found), &found) == 0 && CPU_EQUAL(&found, &free);
  if (still_free) ::sched_setaffinity(0, sizeof(allowed), &allowed);
  return true;
}

}  // namespace ddprun::comm
