#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/stall_aware_clock.h"
#include "rendezvous/membership/node_address.h"
#include "rendezvous/node_info.h"
#include "rendezvous/node_report.h"

namespace ddprun {

// A node as Membership knows it: one that has joined and has a session. Ownership: a value.
struct MembershipNode {
  using Time = std::chrono::steady_clock::time_point;

  NodeInfo info;
  SessionAddresses addresses;
  std::uint64_t arrival = 0;
  Time joined{};
  StallAwareClock::Duration last_heard{};  // by the server's clock of liveness
  std::uint64_t arrival_event = 0;         // the liveness_event() of its arrival, unless it became a member
  std::uint64_t heard_event = 0;           // the liveness_event() at its last heartbeat
  std::optional<int> rank;                 // group rank in the latest round that it was a member of
  std::int64_t rank_of = -1;               // generation of that round, as far as this server or the node knows
  bool member = false;                     // it is a member of the latest round
  bool ready = false;
  bool succeeded = false;
  bool failed = false;
  bool leaves_when_asked = false;       // by leave_asked(), which is no sign of a host that is not well
  bool heard_since_failure = false;     // a heartbeat came since the first failure, while judgement is pending
  std::uint64_t announcement_seen = 0;  // the number of the last waiting text that was sent to it
  struct Worker {
    WorkerReport now;
    Time since{};
    std::optional<std::int64_t> replaced = {};  // the process in whose place another one is started
  };
  std::vector<Worker> workers;   // the round's workers by local rank, as far as reported
  int replaced = 0;              // the number of workers that were replaced, in all rounds
  std::uint16_t store_port = 0;  // of the workers' store here, in the round; 0: it serves none
  std::optional<NodeUsage> usage = {};
  bool wants_standby = false;  // all of its workers of the round do
  bool standby_asked = false;  // this spare has been asked to stand by
  bool stands_by = false;      // and does
};

}  // namespace ddprun
