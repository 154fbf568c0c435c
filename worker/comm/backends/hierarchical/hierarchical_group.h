#pragma once

#include <memory>

#include "ddprun/worker/comm/bootstrap/rank_location.h"
#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// Ranks on several hosts: shared memory within a host, Gloo between them, so that a network carries each host's sum
// once instead of every rank's share. Hosts may have different numbers of ranks, in any order. Ranks that are all on
// one host, or each on its own, need one level and get that alone: backend() tells which. 16-bit floats round once
// within the host, then as Gloo does. A single rank gets a self group. Throws what make_transport_group throws.
std::unique_ptr<ProcessGroup> make_hierarchical_group(const GroupOptions& options);
// The transport of such a group, of two ranks or more.
std::shared_ptr<Transport> make_hierarchical_transport(const GroupOptions& options, const RankLocations& places);

}  // namespace ddprun::comm
