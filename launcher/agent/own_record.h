#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent.h"
#include "launcher/control/agent_record.h"

namespace ddprun {

// The answer of an agent on its control socket: the job with only this node, since the rendezvous knows the others.
// round is the one whose workers were started last, if any; workers are this node's, in that round. Pure.
AgentRecord own_record(const AgentSpec& spec, const std::string& endpoint, const std::optional<Round>& round,
                       std::vector<WorkerReport> workers);

}  // namespace ddprun
