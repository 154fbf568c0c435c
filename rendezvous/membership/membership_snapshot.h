#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/job_policy.h"
#include "rendezvous/job_result.h"
#include "rendezvous/membership/node_address.h"
#include "rendezvous/node_info.h"
#include "rendezvous/round.h"

namespace ddprun {

// The state of a Membership as a value, from which another process can restore it. Deadlines are stored as the time
// remaining. Not included: the counts of flapping hosts, and what only status() reports.
struct MembershipSnapshot {
  enum class Phase { forming, proposed, running, ended };
  struct Node {
    NodeInfo info;
    SessionAddresses addresses;
    std::uint64_t arrival = 0;
    std::chrono::milliseconds joined_ago{};
    std::optional<int> rank;
    std::int64_t rank_of = -1;
    bool member = false, ready = false, succeeded = false, failed = false;
  };

  JobPolicy policy;
  std::string policy_host;
  Phase phase = Phase::forming;
  std::vector<Node> nodes;
  std::map<std::string, int> former_ranks;
  std::uint64_t arrivals = 0;
  Round round;
  std::int64_t next_generation = 0;
  std::uint16_t worker_store_port = 0;
  int restarts_used = 0;
  bool preempted = false;
  std::optional<std::chrono::milliseconds> form_left, last_call_left, ready_left, judgement_left;
  std::vector<WorkerFailure> failures;
  std::string last_change;
};

}  // namespace ddprun
