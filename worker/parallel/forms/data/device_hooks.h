#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

// Hooks for gradients on a device.
//
// Ownership: the caller's; the group outlives the hook. Threads: those of CommHook. Errors: those of the group and the
// device, and of the hook within.
namespace ddprun {

// The hooks fp16 and bf16, with rounding by the device's own operations. dtype: float16 or bfloat16.
std::unique_ptr<CommHook> make_device_cast_hook(DType dtype, ProcessGroup& group);

// Makes a hook for a CUDA device from one for memory of the host, which it owns: each bucket is copied to the host, for
// which the host waits, becomes the average there, and is copied back. The results are the hook's, bit for bit.
std::unique_ptr<CommHook> make_host_hook(std::unique_ptr<CommHook> hook, ProcessGroup& group);

}  // namespace ddprun
