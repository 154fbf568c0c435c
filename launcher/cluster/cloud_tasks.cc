#include <array>

#include "launcher/cluster/discovery.h"
#include "launcher/cluster/variables.h"

namespace ddprun {
namespace {

// A service that starts one command on each node of a task and describes the task to all of them by its own variables.
struct CloudService {
  const char* name;
  const char* rank;  // this variable is set in every task, and nowhere else
  const char* nodes;
  const char* addresses;  // one a line; the first is that of rank 0
  const char* gpus;       // number on each node; absent or 0: none
  const char* id;
  bool shares_nodes;  // several tasks may run on a node at once
};

constexpr std::array<CloudService, 2> services{{
    {.name = "SkyPilot task",
     .rank = "SKYPILOT_NODE_RANK",
     .nodes = "SKYPILOT_NUM_NODES",
     .addresses = "SKYPILOT_NODE_IPS",
     .gpus = "SKYPILOT_NUM_GPUS_PER_NODE",
     .id = "SKYPILOT_TASK_ID",
     .shares_nodes = true},
    {.name = "dstack run",
     .rank = "DSTACK_NODE_RANK",
     .nodes = "DSTACK_NODES_NUM",
     .addresses = "DSTACK_MASTER_NODE_IP",
     .gpus = "DSTACK_GPUS_PER_NODE",
     .id = "DSTACK_RUN_NAME",
     .shares_nodes = false},
}};

constexpr std::uint16_t port_of_own_node = 29400;
// The port range is below the well-known ports and the kernel's ephemeral ones. The number of ports is prime.
constexpr std::uint32_t first_port = 16384;
constexpr std::uint32_t ports = 12007;

// FNV-1a gives the same hash on all nodes, which std::hash does not promise.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

std::uint16_t port_of(const CloudService& service, std::string_view id) {
  return service.shares_nodes ? static_cast<std::uint16_t>(first_port + hash_of(id) % ports) : port_of_own_node;
}

ClusterInfo in_task(const CloudService& service, const Environment& environment) {
  for (const auto* name : {service.nodes, service.addresses, service.id})
    if (text_of(environment, name).empty())
      throw make_error(Errc::usage, "{} is set, as in a {}, but {} is not", service.rank, service.name, name);
  const auto id = text_of(environment, service.id);
  const auto addresses = text_of(environment, service.addresses);
  ClusterInfo info{.job = fmt::format("{} {}", service.name, id),
                   .nodes = number_of(environment, service.nodes, 1),
                   .node_rank = node_rank_of(environment, service.rank, service.nodes),
                   .host = addresses.substr(0, addresses.find('\n')),
                   .port = port_of(service, id),
                   .id = id};
  if (!text_of(environment, service.gpus).empty())
    if (const int gpus = number_of(environment, service.gpus, 0); gpus > 0) info.workers = gpus;
  return info;
}

}  // namespace

std::optional<ClusterInfo> discover_cloud_task(const Environment& environment) {
  for (const auto& service : services)
    if (!text_of(environment, service.rank).empty())
      return info_or_error([&] { return in_task(service, environment); });
  return std::nullopt;
}

}  // namespace ddprun
