#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun {

// The hooks fp16 and bf16 for gradients on a device, which its own operations round. dtype: float16 or bfloat16.
//
// Ownership: the caller's; the group outlives the hook. Threads: those of CommHook. Errors: those of the group and the
// device.
std::unique_ptr<CommHook> make_device_cast_hook(DType dtype, ProcessGroup& group);

}  // namespace ddprun
