#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// For memory of the host: shared memory where the ranks show that they can share it; on several hosts, hierarchical
// where some share a host, else Gloo over TCP; backend() tells which. A single rank gets a self group. For memory of a
// device, where this build and host have nccl: that, in a group that the first collective on such memory forms, which
// blocks meanwhile. Rank 0 logs each choice and its reason.
std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options);

}  // namespace ddprun::comm
