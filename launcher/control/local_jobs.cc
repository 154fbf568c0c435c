#include "launcher/control/local_jobs.h"

#include <pwd.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/host_port.h"

namespace ddprun {

LocalJobs local_jobs(const Environment& environment, const std::string& run_id, Deadline deadline) {
  LocalJobs jobs;
  for (auto& agent : local_agents(environment, deadline))
    if (run_id.empty() || agent.record.own.run_id == run_id) {
      const JobKey key{agent.record.own.run_id, agent.record.endpoint};
      jobs[key].push_back(std::move(agent));
    }
  return jobs;
}

const LocalJobs::value_type& only_job(const LocalJobs& jobs, const std::string& run_id) {
  if (jobs.empty()) throw Error(Errc::unreachable, no_job_text(run_id));
  if (jobs.size() == 1) return *jobs.begin();
  std::vector<std::string> names;
  for (const auto& [key, agents] : jobs) names.push_back(fmt::format("{} at {}", key.first, key.second));
  throw make_error(Errc::usage, "there are several jobs ({}): choose one with --rdzv_id or --rdzv_endpoint",
                   fmt::join(names, ", "));
}

std::string no_job_text(const std::string& run_id) {
  return fmt::format("no job{} of this user runs on this machine; use --rdzv_endpoint=HOST:PORT for a job elsewhere",
                     run_id.empty() ? "" : fmt::format(" of run id '{}'", run_id));
}

std::string requester_name(const std::string& subcommand) {
  const auto* user = ::getpwuid(::geteuid());
  const auto name = user ? std::string(user->pw_name) : fmt::format("user {}", ::geteuid());
  return fmt::format("ddprun {} ({} on host {})", subcommand, name, local_host_name());
}

}  // namespace ddprun
