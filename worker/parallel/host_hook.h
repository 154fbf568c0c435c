#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun {

// Makes a hook for gradients on a CUDA device from one for memory of the host: each bucket is copied to the host, for
// which the host waits, becomes the average there, and is copied back. The results are the hook's, bit for bit.
//
// Ownership: owns the hook; the group outlives both. Threads: those of CommHook. Errors: the hook's and the device's.
std::unique_ptr<CommHook> make_host_hook(std::unique_ptr<CommHook> hook, ProcessGroup& group);

}  // namespace ddprun
