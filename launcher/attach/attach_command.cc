#include "launcher/attach/attach_command.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <optional>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/signal_name.h"
#include "common/standard_output.h"
#include "launcher/attach/attach_protocol.h"
#include "launcher/cli/lists.h"
#include "launcher/cli/subcommands.h"
#include "launcher/control/agent_client.h"
#include "launcher/control/local_jobs.h"
#include "launcher/control/status_text.h"
#include "rendezvous/membership/session_request.h"

namespace ddprun {
namespace {

using namespace std::chrono_literals;

constexpr auto reply_timeout = 10s;

struct Request {
  int rank = 0;
  std::string run_id;
  std::string endpoint;
  int signal_number = 0;  // 0: the command follows the output
};

template <class Number>
std::optional<Number> number_in(const std::string& text) {
  Number number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = status == std::errc{} && end == text.data() + text.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

Request request_of(const SubcommandLine& line) {
  const auto rank = number_in<int>(line.operand);
  if (!rank) throw make_error(Errc::usage, "ddprun attach {}: expected the rank of a worker, from 0", line.operand);
  Request request{.rank = *rank, .run_id = line.value("rdzv_id"), .endpoint = line.value("rdzv_endpoint")};
  if (line.has("signal")) request.signal_number = parse_signal(line.value("signal"), "signal");
  return request;
}

const JobStatus::Node* node_of(const JobStatus& job, int rank) {
  for (const auto& node : job.nodes)
    if (node.state == "member" && rank >= node.first_rank && rank < node.first_rank + node.nproc) return &node;
  return nullptr;
}

// Returns the job that the server of this endpoint knows.
JobStatus job_at(const std::string& endpoint, const std::string& run_id) {
  auto jobs = ask_for_status(server_at(endpoint), run_id, Deadline::in(reply_timeout));
  if (jobs.size() == 1) return std::move(jobs.front());
  const std::string named = run_id.empty() ? "" : fmt::format(" of run id '{}'", run_id);
  if (jobs.empty()) throw make_error(Errc::unreachable, "no job{} at {}", named, endpoint);
  std::vector<std::string> names;
  for (const auto& job : jobs) names.push_back(job.run_id);
  throw make_error(Errc::usage, "there are several jobs at {} ({}): choose one with --rdzv_id", endpoint,
                   fmt::join(names, ", "));
}

[[noreturn]] void throw_elsewhere(const JobStatus& job, int rank) {
  const auto* node = node_of(job, rank);
  if (node)
    throw make_error(Errc::unreachable,
                     "rank {} of {} runs on host {}{}: use ddprun attach there, an agent answers on its own machine",
                     rank, job_name(job.run_id), node->host,
                     node->address.empty() ? "" : fmt::format(" ({})", node->address));
  if (job.world_size > 0 && rank >= job.world_size)
    throw make_error(Errc::usage, "{} has no rank {}: its ranks are 0 to {}", job_name(job.run_id), rank,
                     job.world_size - 1);
  throw make_error(Errc::unreachable, "no worker of rank {} of {} runs now", rank, job_name(job.run_id));
}

// The agents on this machine of the requested job, and its endpoint.
struct JobHere {
  std::vector<LocalAgent> agents;
  std::string endpoint;
  std::string run_id;
};

JobHere job_here(const Request& request, const Environment& environment) {
  const auto deadline = Deadline::in(reply_timeout);
  if (request.endpoint.empty()) {
    const auto jobs = local_jobs(environment, request.run_id, deadline);
    const auto& [key, agents] = only_job(jobs, request.run_id);
    return {.agents = agents, .endpoint = key.second, .run_id = key.first};
  }
  const auto job = job_at(request.endpoint, request.run_id);
  JobHere here{.agents = {}, .endpoint = request.endpoint, .run_id = job.run_id};
  for (auto& agent : local_agents(environment, deadline))
    if (agent.record.own.run_id == job.run_id && agent.record.own.store == job.store)
      here.agents.push_back(std::move(agent));
  return here;
}

// Returns whether the agent can ask that of the rank's node. A spare node does not know how many ranks there are.
bool passes_on(const LocalAgent& agent, int rank) {
  const int ranks = agent.record.own.world_size;
  return agent.record.relays && (ranks == 0 || rank < ranks);
}

// The agent of this machine that has the rank, or one that asks the agent that has it.
LocalAgent agent_of(const Request& request, const Environment& environment) {
  auto here = job_here(request, environment);
  for (auto& agent : here.agents)
    if (node_of(agent.record.own, request.rank)) return std::move(agent);
  for (auto& agent : here.agents)
    if (passes_on(agent, request.rank)) return std::move(agent);
  std::optional<JobStatus> whole;
  try {
    whole = job_at(here.endpoint, here.run_id);
  } catch (const Error& e) {
    log::debug("{}", e.what());
  }
  if (!whole && !here.agents.empty()) whole = here.agents.front().record.own;
  throw_elsewhere(whole.value_or(JobStatus{.run_id = here.run_id}), request.rank);
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw make_error(Errc::io, "cannot write the rank's output: {}", errno_text(errno));
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Returns the job's exit code once it has ended.
std::optional<int> show(const AttachFrame& frame) {
  using Kind = AttachFrame::Kind;
  switch (frame.kind) {
    case Kind::out:
      write_all(STDOUT_FILENO, frame.content);
      return std::nullopt;
    case Kind::err:
      write_all(STDERR_FILENO, frame.content);
      return std::nullopt;
    case Kind::notice:
      log::warn("{}", frame.content);
      return std::nullopt;
    case Kind::refused:
      throw Error(Errc::unreachable, frame.content);
    case Kind::end:
      return number_in<int>(frame.content).value_or(exit_fault);
  }
  return std::nullopt;
}

int follow(const LocalAgent& agent, int rank) {
  const auto connection = request_attach(agent, rank);
  AttachFrames frames;
  std::string block(std::size_t{64} * 1024, '\0');
  for (;;) {
    const auto got = ::read(connection.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw make_error(Errc::connection_lost, "the agent (pid {}) ended before the job", agent.record.pid);
    frames.feed({block.data(), static_cast<std::size_t>(got)});
    while (const auto frame = frames.next())
      if (const auto code = show(*frame)) return *code;
  }
}

}  // namespace

bool is_attach_command(const std::vector<std::string>& arguments) {
  return !arguments.empty() && arguments.front() == "attach";
}

int run_attach_command(const std::vector<std::string>& arguments, const Environment& environment) {
  const auto& subcommand = *find_subcommand("attach");
  const auto line = parse_subcommand(subcommand, {arguments.begin() + 1, arguments.end()});
  if (line.has("help")) {
    write_standard_output(help_text(subcommand));
    return exit_success;
  }
  const auto request = request_of(line);
  const auto agent = agent_of(request, environment);
  if (request.signal_number == 0) return follow(agent, request.rank);
  const auto problem =
      request_signal(agent, request.rank, request.signal_number, requester_name("attach"), Deadline::in(reply_timeout));
  if (!problem.empty()) throw make_error(Errc::unreachable, "rank {}: {}", request.rank, problem);
  write_standard_output(fmt::format("{} was sent to rank {}\n", signal_name(request.signal_number), request.rank));
  return exit_success;
}

}  // namespace ddprun
