#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// GPUs by NCCL. Built where CUDA and NCCL are; elsewhere nccl_unavailable.cc takes its place.
bool nccl_available();
std::unique_ptr<ProcessGroup> make_nccl_group(const GroupOptions& options);

}  // namespace ddprun::comm
