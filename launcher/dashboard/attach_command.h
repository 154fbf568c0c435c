#pragma once

#include <string>

#include "common/environment.h"
#include "launcher/cli/subcommands.h"

namespace ddprun::dashboard {

// ddprun dashboard: serves the page of a running job, with data from its rendezvous server and the workers' store,
// until SIGINT or SIGTERM. Returns the exit code. Throws Errc::usage, Errc::unreachable, Errc::timeout, Errc::io and
// AuthenticationError.
int attach_dashboard(const SubcommandLine& line, const Environment& environment);

}  // namespace ddprun::dashboard
