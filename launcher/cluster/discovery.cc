#include "launcher/cluster/discovery.h"

#include <fmt/ranges.h>

#include "common/error.h"
#include "common/host_port.h"

namespace ddprun {
namespace {

bool endpoint_given(const LaunchSettings& settings) {
  return settings.is_set("rdzv_endpoint") || settings.is_set("master_addr") || settings.is_set("master_port");
}

// The user has set all that a scheduler could provide, or wants a job of only this node.
bool is_disabled(const LaunchSettings& settings) {
  const auto& o = settings.options();
  if (o.standalone) return true;
  return settings.is_set("nnodes") && (endpoint_given(settings) || parse_node_count(o.nnodes).max == 1);
}

bool from_cluster(const LaunchSettings& settings, std::string_view option) {
  return settings.origin(option) == Origin::cluster;
}

}  // namespace

std::optional<ClusterInfo> discover_cluster(const Environment& environment) {
  if (auto info = discover_slurm(environment)) return info;
  if (auto info = discover_kubernetes(environment)) return info;
  return discover_cloud_task(environment);
}

std::optional<ClusterInfo> apply_cluster(LaunchSettings& settings, const Environment& environment) {
  if (is_disabled(settings)) return std::nullopt;
  auto info = discover_cluster(environment);
  if (!info) return std::nullopt;
  if (!info->error.empty()) {
    if (settings.is_set("nnodes")) return std::nullopt;
    throw Error(Errc::usage, info->error);
  }
  const auto assign = [&](const std::string& name, const std::string& value) {
    settings.settings().assign("launch." + name, value, {Origin::cluster, info->job});
  };
  assign("nnodes", std::to_string(info->nodes));
  assign("node_rank", std::to_string(info->node_rank));
  assign("rdzv_id", info->id);
  if (info->workers) assign("nproc_per_node", std::to_string(*info->workers));
  if (!endpoint_given(settings)) assign("rdzv_endpoint", format_host_port(info->host, info->port));
  return info;
}

std::string describe(const ClusterInfo& info, const LaunchSettings& settings) {
  const auto& o = settings.options();
  std::vector<std::string> found;
  if (from_cluster(settings, "node_rank")) found.push_back(fmt::format("node {} of {}", info.node_rank, info.nodes));
  if (from_cluster(settings, "rdzv_endpoint") && info.nodes > 1)
    found.push_back(fmt::format("rendezvous at {}", o.rdzv_endpoint));
  if (from_cluster(settings, "nproc_per_node")) found.push_back(fmt::format("{} workers for its GPUs", *info.workers));
  if (found.empty()) found.emplace_back("all options are given");
  return fmt::format("{}: {}", info.job, fmt::join(found, ", "));
}

}  // namespace ddprun
