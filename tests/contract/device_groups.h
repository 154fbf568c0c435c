#pragma once

#include <algorithm>
#include <chrono>
#include <set>

#include "worker/comm/backends/nccl/nccl_api.h"
#include "worker/comm/backends/nccl/nccl_group.h"
#include "worker/comm/backends/staged/staged_group.h"
#include "worker/comm/registry/host_group.h"
#include "tests/contract/store_groups.h"

// Groups for memory of CUDA devices, emulated or real: a rank is a thread.
namespace ddprun::contract {

inline int device_count() {
  int count = 0;
  return comm::nccl_available() && comm::api().cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// One rank, and one for each device.
inline std::set<int> nccl_sizes() {
  return {1, std::max(1, device_count())};
}

// Rank r runs on device r.
inline std::unique_ptr<ProcessGroup> make_nccl_rank(const GroupOptions& options) {
  return comm::make_nccl_group(options, options.rank, "for the test");
}

// All ranks run on device 0, over shared memory.
inline std::unique_ptr<ProcessGroup> make_staged_rank(const GroupOptions& options) {
  return comm::make_staged_group(comm::make_host_group(options), {.device = 0, .timeout = options.config.timeout});
}

}  // namespace ddprun::contract
