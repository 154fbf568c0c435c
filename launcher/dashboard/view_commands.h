#pragma once

#include <string>
#include <vector>

#include "common/environment.h"

namespace ddprun::dashboard {

// Returns whether the first argument is "top", "report" or "dashboard". A program of that name is started as ./top.
bool is_view_command(const std::vector<std::string>& arguments);

// ddprun top shows the view of a running job in the terminal, ddprun report writes the page of a job from its log
// folder, ddprun dashboard serves the page of a running job that has none. Returns the exit code. Throws Errc::usage,
// Errc::unreachable, Errc::timeout, Errc::io. REQUIRES: is_view_command(arguments).
int run_view_command(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ddprun::dashboard
