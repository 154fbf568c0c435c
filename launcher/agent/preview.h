#pragma once

#include <string>

#include "launcher/agent/agent.h"
#include "launcher/cluster/rendezvous_choice.h"

namespace ddprun {

// The output of --dry_run: this node's rendezvous, and for each worker its placement, command and the environment that
// ddprun adds or changes. "?" is a value that is known only after the rendezvous. Opens nothing and never fails; it may
// block for a lookup of the endpoint's name.
std::string preview(const AgentSpec& spec, const RendezvousChoice& choice);

}  // namespace ddprun
