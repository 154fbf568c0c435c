#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/launcher/agent/agent.h"
#include "ddprun/launcher/cli/options.h"
#include "ddprun/launcher/cluster/rendezvous_choice.h"

namespace ddprun {

// Applies the [launch] section of a train.cfg and the --launch.key=value arguments behind it (which are taken out of
// command); does nothing when the command is no train.cfg. Throws Errc::usage.
void apply_config_file(LaunchSettings& settings, std::vector<std::string>& command);

// A whole job from what the user said: the agent's specification, without the rendezvous itself. Throws Errc::usage, or
// Errc::io when there is nothing to execute.
AgentSpec make_agent_spec(const LaunchSettings& settings, const RendezvousChoice& choice,
                          const Environment& environment, const std::vector<std::string>& command,
                          const std::filesystem::path& own_folder);

// Lines for people about options that are accepted and have no effect as they were given.
std::vector<std::string> idle_options(const LaunchSettings& settings, const AgentSpec& spec);

}  // namespace ddprun
