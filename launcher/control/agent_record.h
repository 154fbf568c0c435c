#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/membership/job_status.h"

namespace ddprun {

// An agent's answer on its control socket. A value.
struct AgentRecord {
  std::int64_t pid = 0;
  std::string endpoint;            // that of the rendezvous server, which knows the whole job
  std::chrono::seconds grace{30};  // period between SIGTERM and SIGKILL for its workers
  bool relays = false;             // it passes requests about ranks on to the agents of other nodes
  JobStatus own;                   // the job with this node only
};

// Returns one line of JSON.
std::string to_json(const AgentRecord& record);
// Throws Errc::protocol.
AgentRecord parse_agent_record(std::string_view json);

}  // namespace ddprun
