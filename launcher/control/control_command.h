#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"

namespace ddprun {

// Whether a command line begins with one of the words that ask about a running job instead of starting one: "status",
// "stop". A program of such a name is started as ./status.
bool is_control_command(const std::vector<std::string>& arguments);

// Carries it out, printing on standard output. Returns the exit code; throws Errc::usage and what asking throws.
// REQUIRES is_control_command(arguments).
int run_control_command(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ddprun
