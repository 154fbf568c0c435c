#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <functional>
#include <string>

#include "worker/cuda/emulator/random.h"

namespace ddprun::cuda::emulator {

inline constexpr int max_threads_of_block = 1024;
inline constexpr std::size_t max_shared_memory = 227 * 1024;

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes;
  const std::function<void()>* thread;  // the kernel, for the thread that threadIdx and blockIdx name
};

// Runs all blocks, one after the other. The threads of a block run one at a time and change places at barriers and
// shuffles; the next one is chosen at random. Returns what is wrong with the kernel: threads that wait for others that
// never come.
std::string run_grid(const Grid& grid, Random& random);

}  // namespace ddprun::cuda::emulator
