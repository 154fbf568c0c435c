#pragma once

#include <string>
#include <vector>

#include "common/environment.h"

namespace ddprun {

// Returns whether the first argument is the subcommand "attach".
bool is_attach_command(const std::vector<std::string>& arguments);

// Follows the output of one rank of a running job until the job ends, or sends the rank's worker a signal (--signal).
// Its standard output and standard error go to those of this process. Returns the exit code: the job's, or 0 for a
// signal. Throws Errc::usage, Errc::unreachable (also when no agent of this machine passes requests for the rank on),
// Errc::timeout, Errc::connection_lost (the agent ended before the job did), Errc::io. REQUIRES:
// is_attach_command(arguments).
int run_attach_command(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace ddprun
