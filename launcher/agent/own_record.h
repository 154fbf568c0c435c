#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/control/agent_record.h"

namespace ddprun {

// Pure. What an agent answers on its control socket: the job with this node alone, since the rendezvous knows the
// others. round: the one whose workers were started last, if any. workers: this node's, in that round.
AgentRecord own_record(const AgentSpec& spec, const std::string& endpoint, const std::optional<Round>& round,
                       std::vector<WorkerReport> workers);

}  // namespace ddprun
