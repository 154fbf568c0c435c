#pragma once

#include <chrono>

#include "rendezvous/membership/flapping_hosts.h"

namespace ddprun {

// How a Membership judges failures and lost nodes. Ownership: a value.
struct MembershipOptions {
  // The time to wait for further reports after the first failure of a round with several nodes: the root cause is the
  // failure observed first, not the one reported first.
  std::chrono::milliseconds settle{200};
  FlappingHosts::Options flapping;
  // Liveness is tracked by leases (etcd), not by heartbeats: missing heartbeats are ignored here. A lease ends later
  // than a connection, so failures are judged only once every other member of the round has sent a heartbeat since the
  // first.
  bool leased = false;
};

}  // namespace ddprun
