#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// Shared memory where the ranks show that they can share it; on several hosts, hierarchical where some share a host,
// else Gloo over TCP; backend() tells which. A single rank gets a self group. Rank 0 logs the choice and its reason.
std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options);

}  // namespace ddprun::comm
