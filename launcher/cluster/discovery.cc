#include "ddprun/launcher/cluster/discovery.h"

#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"

namespace ddprun {
namespace {

bool endpoint_given(const LaunchSettings& settings) {
  return settings.given("rdzv_endpoint") || settings.given("master_addr") || settings.given("master_port");
}

// The user has said all that a cluster could tell, or wants no other node.
bool left_out(const LaunchSettings& settings) {
  const auto& o = settings.options();
  if (o.standalone) return true;
  return settings.given("nnodes") && (endpoint_given(settings) || parse_node_count(o.nnodes).max == 1);
}

bool from_cluster(const LaunchSettings& settings, std::string_view option) {
  return settings.origin(option) == Origin::cluster;
}

}  // namespace

std::optional<ClusterPlace> discover_cluster(const Environment& environment) {
  if (auto place = discover_slurm(environment)) return place;
  return discover_kubernetes(environment);
}

std::optional<ClusterPlace> apply_cluster(LaunchSettings& settings, const Environment& environment) {
  if (left_out(settings)) return std::nullopt;
  auto place = discover_cluster(environment);
  if (!place) return std::nullopt;
  if (!place->mistake.empty()) {
    if (settings.given("nnodes")) return std::nullopt;
    throw Error(Errc::usage, place->mistake);
  }
  const auto assign = [&](const std::string& name, const std::string& value) {
    settings.settings().assign("launch." + name, value, {Origin::cluster, place->job});
  };
  assign("nnodes", std::to_string(place->nodes));
  assign("node_rank", std::to_string(place->node_rank));
  assign("rdzv_id", place->id);
  if (place->workers) assign("nproc_per_node", std::to_string(*place->workers));
  if (!endpoint_given(settings)) assign("rdzv_endpoint", format_host_port(place->host, place->port));
  return place;
}

std::string describe(const ClusterPlace& place, const LaunchSettings& settings) {
  const auto& o = settings.options();
  std::vector<std::string> found;
  if (from_cluster(settings, "node_rank")) found.push_back(fmt::format("node {} of {}", place.node_rank, place.nodes));
  if (from_cluster(settings, "rdzv_endpoint") && place.nodes > 1)
    found.push_back(fmt::format("meeting at {}", o.rdzv_endpoint));
  if (from_cluster(settings, "nproc_per_node")) found.push_back(fmt::format("{} workers for its GPUs", *place.workers));
  if (found.empty()) found.emplace_back("everything is given");
  return fmt::format("{}: {}", place.job, fmt::join(found, ", "));
}

}  // namespace ddprun
