#pragma once

#include <memory>
#include <string>

#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// What `auto` means for host memory, by where the ranks run:
//   one rank                                     self
//   all on one host                              shm
//   each on a host of its own                    gloo
//   several hosts, several ranks on one of them  hierarchical
// REQUIRES, for the transport: two ranks or more.
std::shared_ptr<Transport> make_host_transport(const GroupOptions& options, const RankLocations& locations);

// `auto`, for memory of the host. Rank 0 logs the choice and its reason. place: of this rank's device, which the others
// learn. locations, if not null, is set with several ranks: where each runs.
std::unique_ptr<ProcessGroup> make_host_group(const GroupOptions& options, const DevicePlace& place = {},
                                              RankLocations* locations = nullptr);

// The same beside a group that has logged the choice.
std::unique_ptr<ProcessGroup> make_second_host_group(const GroupOptions& options);

// `hierarchical`: as `auto` for host memory, since ranks that are all on one host, or each on its own, have one level
// only; backend() names the transport in use, and rank 0 logs the fallback.
std::unique_ptr<ProcessGroup> make_hierarchical_group(const GroupOptions& options);

}  // namespace ddprun::comm
