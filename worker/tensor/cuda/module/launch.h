#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <utility>

#include "worker/tensor/cuda/module/check.h"
#include "worker/tensor/cuda/module/device.h"

namespace ddprun::cuda {

// The shared memory that a kernel may have without asking for more.
inline constexpr std::size_t default_shared_memory = 48 * 1024;

// Queues the kernel on the compute stream. A grid without blocks is no work.
template <class... Parameters, class... Arguments>
void launch(DeviceContext& device, void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > default_shared_memory)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
          "cudaFuncSetAttribute");
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = device.stream();
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), "the launch of a kernel");
  ++device.launches;
}

// Returns the block's dynamic shared memory, aligned to 16 bytes.
template <class T>
__device__ T* dynamic_shared() {
#ifdef DDPRUN_CUDA_EMULATED
  return static_cast<T*>(emulator::dynamic_shared_memory());
#else
  extern __shared__ __align__(16) unsigned char ddprun_dynamic_shared_memory[];
  return reinterpret_cast<T*>(ddprun_dynamic_shared_memory);
#endif
}

}  // namespace ddprun::cuda
