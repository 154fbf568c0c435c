#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun {

// Averages over the ranks of the group only this rank's part of the bucket (shards.h); the other parts are undefined
// afterwards. It serves an optimizer that updates this part.
std::unique_ptr<CommHook> make_reduce_scatter_hook(ProcessGroup& group);

}  // namespace ddprun
