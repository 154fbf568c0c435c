#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <string>

#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/cuda/module/host_ring.h"
#include "worker/tensor/cuda/module/memory.h"
#include "worker/tensor/cuda/module/recent_operations.h"
#include "worker/tensor/cuda/module/stream.h"

namespace ddprun::cuda {

// The handles of cuBLASLt and cuDNN, made when one is first used (libraries.h).
struct Libraries;

struct DeviceContext {
  // REQUIRES: the device is current.
  explicit DeviceContext(int ordinal);

  cudaStream_t stream() const { return compute.get(); }
  std::string name() const { return "cuda:" + std::to_string(ordinal); }
  // Returns 90 for sm_90.
  int architecture() const { return 10 * major + minor; }

  int ordinal;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int shared_memory_limit = 0;  // bytes that a block may have
  bool allow_tf32 = false;      // TF32 in place of float32, in products and convolutions
  Stream compute, communication, copies;
  Memory memory;
  HostRing ring;
  std::unique_ptr<Libraries, void (*)(Libraries*)> libraries{nullptr, nullptr};
  std::atomic<std::uint64_t> launches = 0, synchronizations = 0;
  RecentOperations recent;
};

// The context of a device, made at its first use.
DeviceContext& context_of(int ordinal);

}  // namespace ddprun::cuda
