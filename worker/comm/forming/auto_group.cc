#include "ddprun/worker/comm/forming/auto_group.h"

#include <string>

#include "ddprun/common/log.h"
#include "ddprun/worker/comm/forming/placed_transport.h"
#include "ddprun/worker/comm/hierarchical/hierarchical_group.h"
#include "ddprun/worker/comm/in_process/self_group.h"
#include "ddprun/worker/comm/transport/transport_group.h"

namespace ddprun::comm {
namespace {

std::string reason(const HostMap& hosts) {
  if (hosts.hosts() == 1) return fmt::format("the {} ranks run on one host and share its memory", hosts.ranks());
  if (hosts.largest_host() == 1) return fmt::format("of the {} ranks no two share a host's memory", hosts.ranks());
  return fmt::format("the {} ranks run on {} hosts: shared memory within, Gloo between", hosts.ranks(), hosts.hosts());
}

}  // namespace

std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options) {
  if (options.size == 1) return make_self_group();
  const auto choose = [options](const RankPlaces& places) {
    auto transport = make_hierarchical_transport(options, places);
    if (options.rank == 0) log::info("back end {}: {}", transport->backend(), reason(host_map(places)));
    return transport;
  };
  return make_transport_group(make_placed_transport(options, choose), options, make_auto_group);
}

}  // namespace ddprun::comm
