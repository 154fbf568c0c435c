#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun {

// Averages over the ranks of the group, by one allreduce in the type of the bucket, as a reducer without a hook does.
std::unique_ptr<CommHook> make_allreduce_hook(ProcessGroup& group);

}  // namespace ddprun
