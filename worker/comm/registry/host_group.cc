#include "worker/comm/registry/host_group.h"

#include "common/log.h"
#include "worker/comm/backends/gloo/gloo_group.h"
#include "worker/comm/backends/hierarchical/hierarchical_group.h"
#include "worker/comm/backends/local/self_group.h"
#include "worker/comm/backends/shm/shm_group.h"
#include "worker/comm/execution/previous_group.h"
#include "worker/comm/execution/transport_group.h"
#include "worker/comm/registry/auto_group.h"

namespace ddprun::comm {
namespace {

std::string reason(const HostMap& hosts) {
  if (hosts.hosts() == 1) return fmt::format("the {} ranks run on one host and share its memory", hosts.ranks());
  if (hosts.largest_host() == 1) return fmt::format("of the {} ranks no two share a host's memory", hosts.ranks());
  return fmt::format("the {} ranks run on {} hosts: shared memory within, Gloo between", hosts.ranks(), hosts.hosts());
}

}  // namespace

std::shared_ptr<Transport> make_host_transport(const GroupOptions& options, const RankLocations& locations) {
  const auto hosts = host_map(locations);
  if (hosts.hosts() == 1) return make_shm_transport(options);
  if (hosts.largest_host() > 1) return make_hierarchical_transport(options, locations);
  auto reachable = options;
  reachable.config.local_address = address_for_peers(locations, options.rank);
  return make_gloo_transport(reachable);
}

std::unique_ptr<ProcessGroup> make_host_group(const GroupOptions& options, const DevicePlace& place,
                                              RankLocations* found) {
  if (options.size == 1) return make_self_group(segments_for(options));
  const auto factory = [&](const RankLocations& locations) {
    auto transport = make_host_transport(options, locations);
    if (options.rank == 0) log::info("back end {}: {}", transport->traits().backend, reason(host_map(locations)));
    if (found) *found = locations;
    return transport;
  };
  return make_transport_group(factory, options, {"auto", make_auto_group}, place);
}

std::unique_ptr<ProcessGroup> make_second_host_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group(segments_for(options));
  const auto factory = [&](const RankLocations& locations) { return make_host_transport(options, locations); };
  return make_transport_group(factory, options, {"auto", make_second_host_group});
}

std::unique_ptr<ProcessGroup> make_hierarchical_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group(segments_for(options));
  const auto factory = [&](const RankLocations& locations) {
    auto transport = make_host_transport(options, locations);
    const auto backend = transport->traits().backend;
    if (options.rank == 0 && backend != "hierarchical")
      log::info("back end {} instead of hierarchical: {}", backend, reason(host_map(locations)));
    return transport;
  };
  return make_transport_group(factory, options, {"hierarchical", make_hierarchical_group});
}

}  // namespace ddprun::comm
