#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/environment.h"
#include "launcher/agent/agent.h"
#include "launcher/cli/options.h"
#include "launcher/cluster/rendezvous_choice.h"

namespace ddprun {

// The functions that make the specification of an agent from the command line and the settings.

// Applies the [launch] section of a train.cfg and the --launch.key=value arguments after it, which are removed from the
// command. Does nothing when the command is not a train.cfg. Throws Errc::usage.
void apply_config_file(LaunchSettings& settings, std::vector<std::string>& command);

// The agent's specification from the settings, without the rendezvous and the workers' placement. Throws Errc::usage,
// or Errc::io when there is no program to execute.
AgentSpec make_agent_spec(const LaunchSettings& settings, const RendezvousChoice& choice,
                          const Environment& environment, const std::vector<std::string>& command,
                          const std::filesystem::path& own_folder);

// Reads the machine's topology and assigns CPUs, GPU and OpenMP threads to every worker (--bind, OMP_NUM_THREADS). Logs
// what the user should know about it. Throws Errc::usage.
void place_on_machine(AgentSpec& spec, const LaunchSettings& settings);

// Log lines about options that were given and have no effect in this job.
std::vector<std::string> options_without_effect(const LaunchSettings& settings, const AgentSpec& spec);

}  // namespace ddprun
