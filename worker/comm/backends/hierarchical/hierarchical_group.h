#pragma once

#include <memory>

#include "worker/comm/bootstrap/rank_location.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"

namespace ddprun::comm {

// Serves ranks on several hosts, of which one has several ranks, by shared memory within a host and Gloo between hosts,
// so that the network carries each host's sum once instead of every rank's values. Hosts may have different numbers of
// ranks, in any order. 16-bit floats round once within the host, then as Gloo does. Throws Errc::unsupported for ranks
// that are all on one host or each on its own, and what the transports of both levels throw.
std::shared_ptr<Transport> make_hierarchical_transport(const GroupOptions& options, const RankLocations& locations);

}  // namespace ddprun::comm
