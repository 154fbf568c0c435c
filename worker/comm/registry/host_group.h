#pragma once

#include <memory>
#include <string>

#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// The transport that `auto` means for host memory, by where the ranks run:
//   one rank                                     self
//   all on one host                              shm
//   each on a host of its own                    gloo
//   several hosts, several ranks on one of them  hierarchical
// REQUIRES, for the transport: two ranks or more.
std::shared_ptr<Transport> make_host_transport(const GroupOptions& options, const RankLocations& locations);

// Makes the group of `auto` for memory of the host. Rank 0 logs the choice and its reason. place: that of this rank's
// device, which the others learn. locations, if not null, is set with several ranks: where each runs.
std::unique_ptr<ProcessGroup> make_host_group(const GroupOptions& options, const DevicePlace& place = {},
                                              RankLocations* locations = nullptr);

// Makes such a group beside one that has logged the choice.
std::unique_ptr<ProcessGroup> make_second_host_group(const GroupOptions& options);

// Makes the group of `hierarchical`: that of `auto` for host memory where ranks are all on one host, or each on its
// own, and so have only one level; backend() names the transport in use, and rank 0 logs the fallback.
std::unique_ptr<ProcessGroup> make_hierarchical_group(const GroupOptions& options);

}  // namespace ddprun::comm
