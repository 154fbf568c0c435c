#pragma once

#include <string>
#include <vector>

#include "common/environment.h"

namespace ddprun {

// Returns whether the first argument is "status" or "stop". A program of that name is started as ./status.
bool is_control_command(const std::vector<std::string>& arguments);

// Executes the subcommand and prints its result on standard output. Returns the exit code. Throws Errc::usage,
// Errc::unreachable, Errc::timeout, Errc::connection_lost, Errc::io. REQUIRES: is_control_command(arguments).
int run_control_command(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ddprun
