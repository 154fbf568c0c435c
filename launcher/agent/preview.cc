#include "launcher/agent/preview.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/deadline.h"
#include "common/host_port.h"
#include "common/loopback.h"
#include "common/shell_quoted.h"
#include "rendezvous/hosting/endpoint.h"
#include "rendezvous/store/host_lookup.h"

namespace ddprun {
namespace {

constexpr const char* unknown = "?";
constexpr std::chrono::seconds lookup_timeout{2};
using Backend = RendezvousChoice::Backend;
using Variables = std::map<std::string, std::string>;

// The values that are known before the rendezvous. Ranks and sizes assume equal numbers of workers on all nodes.
struct KnownValues {
  bool sizes = false;
  bool ranks = false;
  bool workers_store = false;  // the address of the workers' store
};

KnownValues known_values(const AgentSpec& spec, const RendezvousChoice& choice) {
  const bool fixed = spec.policy.min_nodes == spec.policy.max_nodes;
  return {.sizes = fixed,
          .ranks = fixed && (spec.policy.max_nodes == 1 || choice.node_rank),
          .workers_store = choice.backend == Backend::static_};
}

Round first_round(const AgentSpec& spec, const RendezvousChoice& choice) {
  const int nproc = spec.node.nproc;
  const int node = spec.policy.max_nodes == 1 ? 0 : choice.node_rank.value_or(0);
  Round round;
  round.self = node;
  round.members.resize(static_cast<std::size_t>(std::max(spec.policy.max_nodes, node + 1)));
  round.members[static_cast<std::size_t>(node)] = {.node_id = "",
                                                   .host = spec.node.host,
                                                   .address = "",
                                                   .group_rank = node,
                                                   .nproc = nproc,
                                                   .first_rank = node * nproc};
  round.world_size = spec.policy.max_nodes * nproc;
  round.master_addr = choice.standalone ? loopback_address() : choice.host;
  round.master_port = choice.port;
  return round;
}

std::string error_file(const AgentSpec& spec, int local_rank) {
  if (spec.log_dir.empty() || spec.log_dir == "/dev/null") return unknown;
  return fmt::format("{}/{}_?/attempt_0/{}/error.json", spec.log_dir, spec.policy.run_id, local_rank);
}

// The variables that a worker has in addition to the agent, or with another value.
Variables added(const AgentSpec& spec, const RendezvousChoice& choice, int local_rank) {
  const auto known = known_values(spec, choice);
  auto environment = worker_environment(spec.group.environment, spec.group.exported, first_round(spec, choice),
                                        local_rank, error_file(spec, local_rank));
  const auto hide = [&](bool is_known, std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (!is_known) environment.set(name, unknown);
  };
  hide(known.ranks, {"RANK", "ROLE_RANK", "GROUP_RANK"});
  hide(known.sizes, {"WORLD_SIZE", "ROLE_WORLD_SIZE", "GROUP_WORLD_SIZE"});
  hide(known.workers_store || choice.standalone, {"MASTER_ADDR"});
  hide(known.workers_store, {"MASTER_PORT"});
  if (spec.group.exported.pmi) {
    hide(known.ranks, {"PMI_RANK"});
    hide(known.sizes, {"PMI_SIZE"});
    hide(false, {"PMI_FD"});
  }
  Variables result;
  for (const auto& [name, value] : environment.values())
    if (spec.group.environment.get(name) != value) result[name] = value;
  return result;
}

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("%+,-./:=@_").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain ? word : shell_quoted(word);
}

// The worker's command, quoted for a shell.
std::string command_line(const AgentSpec& spec, int local_rank) {
  auto text = quoted(spec.group.command.executable.string());
  const auto arguments = arguments_for(spec.group.command, local_rank);
  for (std::size_t i = 1; i < arguments.size(); ++i) text += " " + quoted(arguments[i]);
  return text;
}

// A name that is not resolved soon counts as another host's.
Hosting hosting_of(const RendezvousChoice& choice) {
  if (const auto known = decide_hosting(choice.host, choice.is_host)) return *known;
  const auto found = rendezvous::look_up_host(choice.host, choice.port, Deadline::in(lookup_timeout)).found;
  std::vector<std::string> addresses;
  for (const auto& address : found) addresses.push_back(address.text());
  return decide_hosting(addresses);
}

// Returns which node serves the endpoint; empty with etcd.
std::string host_text(const RendezvousChoice& choice) {
  if (choice.backend == Backend::static_) {
    const bool this_one = choice.is_host.value_or(choice.node_rank == 0);
    return this_one ? "; this node would serve it" : "; node rank 0 serves it";
  }
  if (choice.backend != Backend::c10d) return "";
  switch (hosting_of(choice)) {
    case Hosting::required:
      return "; this node would serve it";
    case Hosting::if_free:
      return "; this node would serve it, unless another process of this host does";
    case Hosting::never:
      return "; another node serves it";
  }
  return "";
}

std::string rendezvous_text(const RendezvousChoice& choice) {
  if (choice.standalone) return fmt::format("on a free port of {}, served by this node alone", loopback_address());
  return fmt::format("{} at {}{}", name_of(choice.backend), format_host_port(choice.host, choice.port),
                     host_text(choice));
}

std::string nodes_text(const JobPolicy& policy) {
  const auto text = policy.min_nodes == policy.max_nodes ? fmt::format("{}", policy.max_nodes)
                                                         : fmt::format("{} to {}", policy.min_nodes, policy.max_nodes);
  return policy.spares > 0 ? fmt::format("{}, and up to {} that stand by", text, policy.spares) : text;
}

std::string cores_text(const Placement& placement) {
  auto text = fmt::format("{} (CPUs {})", placement.cores, format_cpu_list(placement.allowed));
  if (placement.quota) text += fmt::format(", a quota of {:.4g} CPUs", *placement.quota);
  return text + (placement.binding == Binding::none ? "; workers are not bound"
                                                    : fmt::format("; --{}", binding_text(placement.binding)));
}

std::string gpu_text(const std::optional<Gpu>& gpu) {
  if (!gpu) return "-";
  return gpu->address.empty() ? gpu->name : fmt::format("{} ({})", gpu->name, gpu->address);
}

std::string threads_text(const AgentSpec& spec, std::size_t worker) {
  if (spec.group.placement.sets_threads) return std::to_string(spec.group.placement.workers[worker].threads);
  return spec.group.environment.get("OMP_NUM_THREADS").value_or("unset");
}

std::string table(const AgentSpec& spec, const RendezvousChoice& choice) {
  constexpr std::size_t columns = 7;
  std::vector<std::array<std::string, columns>> rows{
      {"local rank", "rank", "host", "GPU", "CPUs", "NUMA nodes", "OMP threads"}};
  const auto round = first_round(spec, choice);
  const int first_rank = round.members[static_cast<std::size_t>(round.self)].first_rank;
  for (int worker = 0; worker < spec.node.nproc; ++worker) {
    const auto index = static_cast<std::size_t>(worker);
    const auto& place = spec.group.placement.workers.at(index);
    rows.push_back({std::to_string(worker),
                    known_values(spec, choice).ranks ? std::to_string(first_rank + worker) : unknown, spec.node.host,
                    gpu_text(place.gpu), place.cpus.empty() ? "any" : format_cpu_list(place.cpus),
                    fmt::format("{}", fmt::join(place.nodes, ",")), threads_text(spec, index)});
  }
  std::array<std::size_t, columns> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < columns; ++i) line += fmt::format("  {:<{}}", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string lines_of(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables)
    text += fmt::format("  {}={}\n", name, value == unknown ? value : quoted(value));
  return text;
}

// The variables that all workers share come first, then those of each worker.
std::string environments(const AgentSpec& spec, const RendezvousChoice& choice) {
  std::vector<Variables> own;
  for (int worker = 0; worker < spec.node.nproc; ++worker) own.push_back(added(spec, choice, worker));
  Variables common;
  for (const auto& entry : own.front())
    if (std::all_of(own.begin(), own.end(), [&](const Variables& other) {
          const auto found = other.find(entry.first);
          return found != other.end() && found->second == entry.second;
        }))
      common.insert(entry);
  std::string text = "\nenvironment added or changed, all workers:\n" + lines_of(common);
  for (std::size_t worker = 0; worker < own.size(); ++worker) {
    for (const auto& entry : common) own[worker].erase(entry.first);
    if (!own[worker].empty()) text += fmt::format("worker {}:\n{}", worker, lines_of(own[worker]));
  }
  return text;
}

std::string commands(const AgentSpec& spec) {
  const auto first = command_line(spec, 0);
  const bool alike = first == command_line(spec, 1);
  std::string text;
  for (int worker = 0; worker < (alike ? 1 : spec.node.nproc); ++worker)
    text += fmt::format("\ncommand{}:\n  {}\n", alike ? "" : fmt::format(", worker {}", worker),
                        command_line(spec, worker));
  return text;
}

std::string footnote(const AgentSpec& spec, const RendezvousChoice& choice) {
  const auto known = known_values(spec, choice);
  std::string text = "\n?: known once the job starts\n";
  if (spec.policy.max_nodes > 1 && known.sizes)
    text += fmt::format("ranks and sizes are correct if every node starts {} workers{}\n", spec.node.nproc,
                        known.ranks && choice.backend != Backend::static_ ? " and gets the rank that it requests" : "");
  return text;
}

}  // namespace

std::string preview(const AgentSpec& spec, const RendezvousChoice& choice) {
  auto text = fmt::format("a preview of this node, on which {} worker{} would run; nothing is started\n\n",
                          spec.node.nproc, spec.node.nproc == 1 ? "" : "s");
  const auto row = [&](const char* name, const std::string& value) {
    text += fmt::format("  {:<12}{}\n", name, value);
  };
  row("job", fmt::format("id {}, {}", spec.policy.run_id, spec.policy.program));
  row("nodes", nodes_text(spec.policy));
  row("rendezvous", rendezvous_text(choice));
  row("cores", cores_text(spec.group.placement));
  row("GPUs", std::to_string(spec.group.placement.gpus));
  for (const auto& notice : spec.group.placement.notices) row("note", notice);
  return text + "\n" + table(spec, choice) + environments(spec, choice) + commands(spec) + footnote(spec, choice);
}

}  // namespace ddprun
