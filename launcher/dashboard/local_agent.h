#pragma once

#include <string>

#include "common/environment.h"
#include "launcher/control/agent_client.h"

namespace ddprun::dashboard {

// An agent of this user on this machine, of the only job, or of the one of this run id. All agents of a job have the
// same data. Throws Errc::unreachable if there is none, Errc::usage if there are several jobs.
LocalAgent local_agent(const std::string& run_id, const Environment& environment);

}  // namespace ddprun::dashboard
