#include "launcher/control/control_command.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/log.h"
#include "common/standard_output.h"
#include "launcher/cli/subcommands.h"
#include "launcher/control/agent_client.h"
#include "launcher/control/group_progress.h"
#include "launcher/control/group_text.h"
#include "launcher/control/local_jobs.h"
#include "launcher/control/status_text.h"
#include "rendezvous/membership/session_request.h"

namespace ddprun {
namespace {

using namespace std::chrono_literals;

constexpr auto reply_timeout = 10s;

template <class... Args>
void write_output(fmt::format_string<Args...> format, Args&&... args) {
  write_standard_output(fmt::format(format, std::forward<Args>(args)...));
}

struct Request {
  std::string endpoint;
  std::string run_id;
  bool collectives = false;
  bool json = false;
};

Request request_of(const SubcommandLine& line) {
  return {.endpoint = line.value("rdzv_endpoint"),
          .run_id = line.value("rdzv_id"),
          .collectives = line.has("collectives"),
          .json = line.has("json")};
}

// The agents know the progress of their workers' training, and replacements, at once; the server gets them later.
void add_own(JobStatus& job, const std::vector<LocalAgent>& agents) {
  std::map<std::pair<std::string, std::int64_t>, TrainingReport> told;  // key: host and process
  for (const auto& agent : agents) job.restarts_used = std::max(job.restarts_used, agent.record.own.restarts_used);
  for (const auto& agent : agents)
    for (const auto& node : agent.record.own.nodes)
      for (const auto& worker : node.workers)
        if (worker.now.training) told[{node.host, worker.now.pid}] = *worker.now.training;
  for (auto& node : job.nodes)
    for (auto& worker : node.workers)
      if (const auto found = told.find({node.host, worker.now.pid}); found != told.end())
        worker.now.training = found->second;
}

// Returns the whole job if its rendezvous server answers, otherwise what the agents on this machine know.
std::vector<JobStatus> status_of(const JobKey& key, const std::vector<LocalAgent>& agents) {
  try {
    auto jobs = ask_for_status(server_at(key.second), key.first, Deadline::in(reply_timeout));
    for (auto& job : jobs) add_own(job, agents);
    return jobs;
  } catch (const Error& e) {
    log::warn("{}; the output has only what the agents on this machine know", e.what());
  }
  std::vector<JobStatus> jobs;
  for (const auto& agent : agents) jobs.push_back(agent.record.own);
  return jobs;
}

std::vector<JobStatus> requested_jobs(const Request& request, const Environment& environment) {
  std::vector<JobStatus> jobs;
  if (!request.endpoint.empty()) {
    jobs = ask_for_status(server_at(request.endpoint), request.run_id, Deadline::in(reply_timeout));
  } else {
    for (const auto& [key, agents] : local_jobs(environment, request.run_id, Deadline::in(reply_timeout)))
      for (auto& job : status_of(key, agents)) jobs.push_back(std::move(job));
  }
  return jobs;
}

// Merges statuses of one job that come from agents each of which knows only its own node.
std::vector<JobStatus> merge(const std::vector<JobStatus>& statuses) {
  std::vector<JobStatus> jobs;
  for (const auto& status : statuses) {
    const auto same = [&](const JobStatus& job) { return job.run_id == status.run_id && job.store == status.store; };
    const auto found = std::find_if(jobs.begin(), jobs.end(), same);
    if (found == jobs.end())
      jobs.push_back(status);
    else
      found->nodes.insert(found->nodes.end(), status.nodes.begin(), status.nodes.end());
  }
  return jobs;
}

std::string collectives_text(const JobStatus& job, bool as_json) {
  const auto groups = query_progress(job, Deadline::in(reply_timeout));
  if (as_json) return groups_json(job, groups);
  auto text = fmt::format("{} ({}), generation {}\n", job_name(job.run_id), job.program, job.generation);
  for (const auto& group : groups) text += group_text(group);
  return text + (groups.empty() ? no_groups_text() : "");
}

// An error about one job does not prevent the output for the others.
int show_collectives(const std::vector<JobStatus>& jobs, bool as_json) {
  int code = exit_success;
  std::vector<std::string> texts;
  for (const auto& job : jobs) {
    try {
      texts.push_back(collectives_text(job, as_json));
    } catch (const Error& e) {
      log::error("{}", e.what());
      code = exit_for(e.code());
    }
  }
  if (as_json)
    write_output("{{\"jobs\":[{}]}}\n", fmt::join(texts, ","));
  else
    write_output("{}", fmt::join(texts, ""));
  return code;
}

[[noreturn]] void throw_no_job(const Request& request) {
  if (request.endpoint.empty()) throw Error(Errc::unreachable, no_job_text(request.run_id));
  std::vector<std::string> others;
  if (!request.run_id.empty())
    for (const auto& job : ask_for_status(server_at(request.endpoint), "", Deadline::in(reply_timeout)))
      others.push_back(job.run_id);
  throw make_error(Errc::unreachable, "no job{} at {}{}{}",
                   request.run_id.empty() ? "" : fmt::format(" of run id '{}'", request.run_id), request.endpoint,
                   others.empty() ? "" : "; there is ", fmt::join(others, ", "));
}

int show_status(const Request& request, const Environment& environment) {
  const auto jobs = requested_jobs(request, environment);
  if (jobs.empty()) {
    if (request.json) write_output("{}\n", to_json(jobs));
    throw_no_job(request);
  }
  if (request.collectives) return show_collectives(merge(jobs), request.json);
  if (request.json) {
    write_output("{}\n", to_json(jobs));
    return exit_success;
  }
  for (const auto& job : jobs) write_output("{}", status_text(job));
  return exit_success;
}

// It is enough to ask one agent, which ends the job on all nodes. Waits for the agents on this machine.
int stop_local(const LocalJobs::value_type& job) {
  const auto& [key, agents] = job;
  std::vector<UniqueFd> connections;
  std::chrono::seconds grace{0};
  for (const auto& agent : agents) {
    connections.push_back(connect_to_agent(agent));
    grace = std::max(grace, agent.record.grace);
  }
  connections.push_back(request_stop(agents.front(), requester_name("stop"), Deadline::in(reply_timeout)));
  const auto deadline = Deadline::in(grace + 3 * reply_timeout);
  for (const auto& connection : connections)
    if (!wait_for_close(connection.get(), deadline))
      throw make_error(Errc::timeout, "{} was told to stop and still runs after its grace period of {} s",
                       job_name(key.first), grace.count());
  write_output("{} has stopped\n", job_name(key.first));
  return exit_success;
}

int stop_job(const Request& request, const Environment& environment) {
  if (!request.endpoint.empty()) {
    const auto job =
        ask_to_stop(server_at(request.endpoint), request.run_id, requester_name("stop"), Deadline::in(reply_timeout));
    if (!job) throw_no_job(request);
    write_output("{} has been told to stop: {} node{}\n", job_name(job->run_id), job->node_count,
                 job->node_count == 1 ? "" : "s");
    return exit_success;
  }
  const auto jobs = local_jobs(environment, request.run_id, Deadline::in(reply_timeout));
  return stop_local(only_job(jobs, request.run_id));
}

}  // namespace

bool is_control_command(const std::vector<std::string>& arguments) {
  return !arguments.empty() && find_subcommand(arguments.front());
}

int run_control_command(const std::vector<std::string>& arguments, const Environment& environment) {
  const auto& subcommand = *find_subcommand(arguments.front());
  const auto line = parse_subcommand(subcommand, {arguments.begin() + 1, arguments.end()});
  if (line.has("help")) {
    write_output("{}", help_text(subcommand));
    return exit_success;
  }
  const auto request = request_of(line);
  return subcommand.name == "status" ? show_status(request, environment) : stop_job(request, environment);
}

}  // namespace ddprun
