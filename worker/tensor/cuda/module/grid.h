#pragma once

#include <algorithm>
#include <cstdint>

#include "common/rounding.h"
#include "worker/tensor/cuda/module/launch.h"

// The shape of launches: blocks of one size, and loops over the grid, so that any count of elements fits any grid.
namespace ddprun::cuda {

inline constexpr int block_threads = 256;

// Enough blocks to fill a multiprocessor twice; more would only be started one after the other. No result depends on
// it.
inline constexpr std::int64_t blocks_of_multiprocessor = 16;

// The grid for so many pieces of work, each of which takes a block.
inline unsigned grid_of_blocks(const DeviceContext& device, std::int64_t pieces) {
  return static_cast<unsigned>(std::clamp<std::int64_t>(pieces, 1, device.multiprocessors * blocks_of_multiprocessor));
}
// The grid for so many pieces of work, each of which takes a thread.
inline unsigned grid_of_threads(const DeviceContext& device, std::int64_t pieces) {
  return grid_of_blocks(device, divide_up(pieces, block_threads));
}

__device__ inline std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
}
__device__ inline std::int64_t threads_of_grid() {
  return static_cast<std::int64_t>(gridDim.x) * block_threads;
}

}  // namespace ddprun::cuda
