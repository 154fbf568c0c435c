#include "worker/comm/backends/shm/processor_sharing.h"

#include <sched.h>

namespace ddprun::comm {

bool ProcessorSharing::may_spin(const LastProcessor& peer) {
  own_.record();
  const auto number = own_.number();
  return !number || number != peer.number() || move_away();
}

// Lets the kernel choose among the processors on which no rank of the group ran last.
bool ProcessorSharing::move_away() {
  const auto now = Clock::now();
  if (now < next_move_.load(std::memory_order_relaxed)) return false;
  next_move_.store(now + move_interval, std::memory_order_relaxed);
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  cpu_set_t free = allowed;
  for (int r = 0; r < layout_.ranks(); ++r)
    if (const auto number = layout_.rank(r).processor.number()) CPU_CLR(static_cast<std::size_t>(*number), &free);
  if (CPU_COUNT(&free) == 0 || ::sched_setaffinity(0, sizeof(free), &free) != 0) return false;
  own_.record();
  ::sched_setaffinity(0, sizeof(allowed), &allowed);
  return true;
}

}  // namespace ddprun::comm
