#pragma once

#include <memory>

#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// Makes a group of ranks on one host, which exchange data through shared memory. 16-bit floats are rounded once in all.
// A single rank gets a self group. Throws what make_transport_group throws; Errc::unsupported naming a rank that runs
// on another host, in another container or as another user; Errc::usage where staging_bytes is too small for the number
// of ranks.
std::unique_ptr<ProcessGroup> make_shm_group(const GroupOptions& options);
// The transport of such a group, for two ranks or more that are known to run on one host. threads_per_rank: threads
// that need a core while the ranks wait for each other; with more of them than cores, a waiting rank yields its core at
// once. Throws Errc::usage as above.
std::shared_ptr<Transport> make_shm_transport(const GroupOptions& options, int threads_per_rank = 1);

}  // namespace ddprun::comm
