#pragma once

#include <cstdint>

#include "worker/tensor/cuda/module/device.h"

// Kernels of the tests, one for each thing that the emulator must do.
namespace ddprun::testing {

// ids[i] = i for each thread, by a loop over the grid.
void number_threads(cuda::DeviceContext& device, std::int64_t* ids, std::int64_t n, unsigned int blocks,
                    unsigned int threads);
// sums[b] = the sum of block b's `threads` numbers, halving in shared memory.
void sum_blocks(cuda::DeviceContext& device, const float* x, float* sums, unsigned int blocks, unsigned int threads);
// out[i] = the sum over i's warp, by shuffles.
void sum_warps(cuda::DeviceContext& device, const int* x, int* out, unsigned int threads);
// out: four times 32 numbers, for each lane the lane whose value a shuffle gave it, and a ballot.
void shuffle_lanes(cuda::DeviceContext& device, int* out);
// out[b] = the value that block b finds in its shared memory before it writes there.
void read_shared_memory(cuda::DeviceContext& device, float* out, unsigned int blocks);
// order[1 + i] = the i-th thread that ran; order[0] is their number.
void record_order(cuda::DeviceContext& device, int* order);
// 64 threads: out[i] = the number of the thread before i's neighbour, through shared memory.
enum class Barriers { all, none_of_block, none_of_warp };
void rotate(cuda::DeviceContext& device, int* out, Barriers barriers);
void count_threads(cuda::DeviceContext& device, int* sum, unsigned int blocks, unsigned int threads);
// x[i] += y[i], once for each call
void add(cuda::DeviceContext& device, float* x, const float* y, std::int64_t n);
// One thread of the block misses a shuffle with all lanes.
void wait_for_ever(cuda::DeviceContext& device);

}  // namespace ddprun::testing
