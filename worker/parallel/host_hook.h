#pragma once

#include <memory>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/reducer/comm_hook.h"

namespace ddprun {

// A hook for gradients on a CUDA device from one that works on memory of the host: each bucket is copied to the host,
// for which the host waits, becomes the average there, and is copied back. The results are the hook's, bit for bit.
//
// Ownership: owns the hook; the group outlives both. Threads: as CommHook. Errors: those of the hook and the device.
std::unique_ptr<CommHook> make_host_hook(std::unique_ptr<CommHook> hook, ProcessGroup& group);

}  // namespace ddprun
