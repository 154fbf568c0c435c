#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "ddprun/rendezvous/membership/job_status.h"

namespace ddprun {

// What an agent says of itself to those who ask it directly.
struct AgentRecord {
  std::int64_t pid = 0;
  std::string endpoint;            // of the rendezvous, where the whole job can be asked for
  std::chrono::seconds grace{30};  // of its workers, once they are told to end
  JobStatus own;                   // the job as this node knows it: itself alone
};

// One line of JSON.
std::string to_json(const AgentRecord& record);
// Throws Errc::protocol.
AgentRecord parse_agent_record(std::string_view json);

}  // namespace ddprun
