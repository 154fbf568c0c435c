#pragma once

#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/cli/options.h"

namespace ddprun {

// Looks at the machine and gives every worker its place: --bind, OMP_NUM_THREADS. Says in a line what the user should
// know of it. Throws Errc::usage.
void place_on_machine(AgentSpec& spec, const LaunchSettings& settings);

}  // namespace ddprun
