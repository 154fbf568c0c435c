#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/environment.h"
#include "launcher/control/agent_client.h"

// The jobs of this user that have agents on this machine.
namespace ddprun {

using JobKey = std::pair<std::string, std::string>;  // run id, endpoint
using LocalJobs = std::map<JobKey, std::vector<LocalAgent>>;

// The jobs of this run id; all jobs if it is empty. Throws as local_agents() does.
LocalJobs local_jobs(const Environment& environment, const std::string& run_id, Deadline deadline);

// Throws Errc::usage, naming the jobs, if there are several, Errc::unreachable if there is none.
const LocalJobs::value_type& only_job(const LocalJobs& jobs, const std::string& run_id);

// The message that there is no such job.
std::string no_job_text(const std::string& run_id);

// The name of the requester, for the agents' logs: "ddprun stop (alice on host a)".
std::string requester_name(const std::string& subcommand);

}  // namespace ddprun
