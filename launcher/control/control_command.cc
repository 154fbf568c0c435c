#include "ddprun/launcher/control/control_command.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <pwd.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/log.h"
#include "ddprun/common/standard_output.h"
#include "ddprun/launcher/cli/command_line.h"
#include "ddprun/launcher/cli/verbs.h"
#include "ddprun/launcher/control/agent_client.h"
#include "ddprun/launcher/control/group_progress.h"
#include "ddprun/launcher/control/group_text.h"
#include "ddprun/launcher/control/status_text.h"
#include "ddprun/rendezvous/membership/session_request.h"

namespace ddprun {
namespace {

using namespace std::chrono_literals;

constexpr auto patience = 10s;  // for an answer
constexpr std::uint16_t default_port = 29400;

template <class... Args>
void write_output(fmt::format_string<Args...> format, Args&&... args) {
  write_standard_output(fmt::format(format, std::forward<Args>(args)...));
}

struct Request {
  std::string endpoint;
  std::string run_id;
  bool collectives = false;
  bool json = false;
  bool help = false;
};

Request parse(const Verb& verb, const std::vector<std::string>& arguments) {
  Request request;
  const auto form = normal_form(arguments, verb.options);
  if (!form.command.empty())
    throw make_error(Errc::usage, "ddprun {}: superfluous argument '{}'; a program of that name is started as ./{}",
                     verb.name, form.command.front(), verb.name);
  for (const auto& option : form.options) {
    const auto given = given_option(option);
    if (given.name == "rdzv_endpoint") request.endpoint = given.value.value();
    if (given.name == "rdzv_id") request.run_id = given.value.value();
    if (given.name == "collectives") request.collectives = true;
    if (given.name == "json") request.json = true;
    if (given.name == "help") request.help = true;
  }
  return request;
}

ServerAddress server_at(const std::string& endpoint) {
  const auto parsed = parse_host_port(endpoint);
  return {.host = parsed.host.empty() ? "127.0.0.1" : parsed.host, .port = parsed.port_or(default_port)};
}

// One job on this machine: its agents here.
using JobKey = std::pair<std::string, std::string>;  // run id, endpoint
using LocalJobs = std::map<JobKey, std::vector<LocalAgent>>;

LocalJobs local_jobs(const Environment& environment, const std::string& run_id) {
  LocalJobs jobs;
  for (auto& agent : local_agents(environment, Deadline::in(patience)))
    if (run_id.empty() || agent.record.own.run_id == run_id) {
      const JobKey key{agent.record.own.run_id, agent.record.endpoint};
      jobs[key].push_back(std::move(agent));
    }
  return jobs;
}

std::string nothing_text(const std::string& run_id) {
  return fmt::format("no job{} of this user runs on this machine; --rdzv_endpoint=HOST:PORT asks elsewhere",
                     run_id.empty() ? "" : fmt::format(" of run id '{}'", run_id));
}

// The whole job where its rendezvous answers, else what the agents here know.
std::vector<JobStatus> status_of(const JobKey& key, const std::vector<LocalAgent>& agents) {
  try {
    return ask_for_status(server_at(key.second), key.first, Deadline::in(patience));
  } catch (const Error& e) {
    log::warn("{}; what the agents on this machine know:", e.what());
  }
  std::vector<JobStatus> jobs;
  for (const auto& agent : agents) jobs.push_back(agent.record.own);
  return jobs;
}

std::vector<JobStatus> jobs_asked_for(const Request& request, const Environment& environment) {
  std::vector<JobStatus> jobs;
  if (!request.endpoint.empty()) {
    jobs = ask_for_status(server_at(request.endpoint), request.run_id, Deadline::in(patience));
  } else {
    for (const auto& [key, agents] : local_jobs(environment, request.run_id))
      for (auto& job : status_of(key, agents)) jobs.push_back(std::move(job));
    if (jobs.empty() && !request.run_id.empty())
      throw make_error(Errc::unreachable, "{}", nothing_text(request.run_id));
  }
  return jobs;
}

// Where each agent knows itself alone, the agents' words about one job are put together.
std::vector<JobStatus> joined(const std::vector<JobStatus>& words) {
  std::vector<JobStatus> jobs;
  for (const auto& word : words) {
    const auto same = [&](const JobStatus& job) { return job.run_id == word.run_id && job.store == word.store; };
    const auto found = std::find_if(jobs.begin(), jobs.end(), same);
    if (found == jobs.end())
      jobs.push_back(word);
    else
      found->nodes.insert(found->nodes.end(), word.nodes.begin(), word.nodes.end());
  }
  return jobs;
}

std::string collectives_text(const JobStatus& job, bool as_json) {
  const auto groups = ask_for_progress(job, Deadline::in(patience));
  if (as_json) return groups_json(job, groups);
  auto text = fmt::format("job {} ({}), generation {}\n", job.run_id, job.program, job.generation);
  for (const auto& group : groups) text += group_text(group);
  return text + (groups.empty() ? no_groups_text() : "");
}

// One job whose workers cannot be asked does not stand in the way of the others.
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

int show_status(const Request& request, const Environment& environment) {
  const auto jobs = jobs_asked_for(request, environment);
  if (jobs.empty() && !request.json) {
    write_output("{}\n", request.endpoint.empty() ? nothing_text("") : "no job at " + request.endpoint);
    return exit_success;
  }
  if (request.collectives) return show_collectives(joined(jobs), request.json);
  if (request.json) {
    write_output("{}\n", to_json(jobs));
    return exit_success;
  }
  for (const auto& job : jobs) write_output("{}", status_text(job));
  return exit_success;
}

std::string who_asks() {
  const auto* user = ::getpwuid(::geteuid());
  const auto name = user ? std::string(user->pw_name) : fmt::format("user {}", ::geteuid());
  return fmt::format("ddprun stop ({} on host {})", name, local_host_name());
}

// Told by one agent, all nodes end; those of this machine are waited for.
int stop_local(const LocalJobs& jobs) {
  const auto& [key, agents] = *jobs.begin();
  std::vector<UniqueFd> ends;
  std::chrono::seconds grace{0};
  for (const auto& agent : agents) {
    ends.push_back(follow_agent(agent));
    grace = std::max(grace, agent.record.grace);
  }
  ends.push_back(ask_agent_to_stop(agents.front(), who_asks(), Deadline::in(patience)));
  const auto deadline = Deadline::in(grace + 3 * patience);
  for (const auto& end : ends)
    if (!wait_for_end(end.get(), deadline))
      throw make_error(Errc::timeout, "job {} has been told to stop, and has not within its grace of {} s", key.first,
                       grace.count());
  write_output("job {} has stopped\n", key.first);
  return exit_success;
}

int stop_job(const Request& request, const Environment& environment) {
  if (!request.endpoint.empty()) {
    const auto job = ask_to_stop(server_at(request.endpoint), request.run_id, who_asks(), Deadline::in(patience));
    write_output("job {} has been told to stop: {} node{}\n", job.run_id, job.node_count,
                 job.node_count == 1 ? "" : "s");
    return exit_success;
  }
  const auto jobs = local_jobs(environment, request.run_id);
  if (jobs.empty()) throw make_error(Errc::unreachable, "{}", nothing_text(request.run_id));
  if (jobs.size() == 1) return stop_local(jobs);
  std::vector<std::string> names;
  for (const auto& [key, agents] : jobs) names.push_back(fmt::format("{} at {}", key.first, key.second));
  throw make_error(Errc::usage, "there are several jobs ({}): name one with --rdzv_id or --rdzv_endpoint",
                   fmt::join(names, ", "));
}

}  // namespace

bool is_control_command(const std::vector<std::string>& arguments) {
  return !arguments.empty() && find_verb(arguments.front());
}

int run_control_command(const std::vector<std::string>& arguments, const Environment& environment) {
  const auto& verb = *find_verb(arguments.front());
  const auto request = parse(verb, {arguments.begin() + 1, arguments.end()});
  if (request.help) {
    write_output("{}", help_text(verb));
    return exit_success;
  }
  return verb.name == "status" ? show_status(request, environment) : stop_job(request, environment);
}

}  // namespace ddprun
