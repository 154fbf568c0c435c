#pragma once

#include <memory>

#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// The back end `auto`. For host memory it is what fits where the ranks run (host_group.h); backend() tells which. For
// memory of options.config.device, where that is given, it is NCCL if no two ranks share a device, else staging through
// memory of the host. Rank 0 logs each choice and its reason.
std::unique_ptr<ProcessGroup> make_auto_group(const GroupOptions& options);

}  // namespace ddprun::comm
