#include "launcher/dashboard/local_agent.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"

namespace ddprun::dashboard {
namespace {

constexpr std::chrono::seconds agent_timeout{10};

}  // namespace

LocalAgent local_agent(const std::string& wanted, const Environment& environment) {
  std::vector<std::string> jobs;
  std::optional<LocalAgent> found;
  for (auto& agent : local_agents(environment, Deadline::in(agent_timeout))) {
    const auto& run_id = agent.record.own.run_id;
    if (!wanted.empty() && run_id != wanted) continue;
    if (std::find(jobs.begin(), jobs.end(), run_id) == jobs.end()) jobs.push_back(run_id);
    if (!found) found = std::move(agent);
  }
  if (jobs.size() > 1)
    throw make_error(Errc::usage, "there are several jobs ({}): choose one with --rdzv_id", fmt::join(jobs, ", "));
  if (!found) throw make_error(Errc::unreachable, "no such job of this user runs on this machine");
  return std::move(*found);
}

}  // namespace ddprun::dashboard
