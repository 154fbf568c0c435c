#pragma once

#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/cluster/rendezvous_choice.h"

namespace ddprun {

// Gives the agent its rendezvous and its workers their store, as chosen. No I/O yet: both are opened on the agent's
// loop.
void arrange_meeting(AgentSpec& spec, const RendezvousChoice& choice);

}  // namespace ddprun
