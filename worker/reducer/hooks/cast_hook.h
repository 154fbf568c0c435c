#pragma once

#include <memory>

#include "common/dtype.h"
#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"

namespace ddprun {

// Rounds each bucket to a 16-bit type, which inner averages: PyTorch's fp16_compress_hook and bf16_compress_hook, and
// with another inner hook fp16_compress_wrapper and bf16_compress_wrapper. A gradient beyond the range of float16
// becomes infinite.
std::unique_ptr<CommHook> make_cast_hook(DType dtype, ProcessGroup& group, std::unique_ptr<CommHook> inner);

}  // namespace ddprun
