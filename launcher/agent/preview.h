#pragma once

#include <string>

#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/cluster/rendezvous_choice.h"

namespace ddprun {

// What --dry_run prints: where this node would meet others, where each of its workers would run, with which environment
// (what ddprun adds or changes) and which command. "?" stands for what is known only once the nodes have met. Opens
// nothing; may block for a lookup of the endpoint's name.
std::string preview(const AgentSpec& spec, const RendezvousChoice& choice);

}  // namespace ddprun
