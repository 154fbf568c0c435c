#include "worker/tensor/cuda/module/launch.h"
#include "tests/unit/cuda/kernels.h"

namespace ddprun::testing {

using namespace cuda;

namespace {

__global__ void number_threads_kernel(std::int64_t* ids, std::int64_t n) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) ids[i] = i;
}

__global__ void sum_blocks_kernel(const float* x, float* sums) {
  float* const shared = dynamic_shared<float>();
  shared[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  for (unsigned int width = blockDim.x / 2; width > 0; width /= 2) {
    if (threadIdx.x < width) shared[threadIdx.x] += shared[threadIdx.x + width];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = shared[0];
}

__global__ void sum_warps_kernel(const int* x, int* out) {
  int sum = x[threadIdx.x];
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffff, sum, mask);
  out[threadIdx.x] = sum;
}

__global__ void wait_for_ever_kernel() {
  if (threadIdx.x == 0)
    __syncthreads();
  else
    __syncwarp();
}

__global__ void shuffle_lanes_kernel(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_down_sync(0xffffffff, lane, 3, 8);
  out[32 + lane] = __shfl_up_sync(0xffffffff, lane, 3, 8);
  out[64 + lane] = __shfl_sync(0xffffffff, lane, 13, 8);
  out[96 + lane] = -1;
  if (lane < 20) out[96 + lane] = static_cast<int>(__ballot_sync(0xfffff, lane != 0 && lane != 4));
}

__global__ void read_shared_memory_kernel(float* out) {
  float* const shared = dynamic_shared<float>();
  out[blockIdx.x] = shared[0];
  shared[0] = 1;
}

__global__ void note_order_kernel(int* order) {
  __syncthreads();
  order[1 + atomicAdd(order, 1)] = static_cast<int>(threadIdx.x);
}

__global__ void rotate_kernel(int* out, bool block_barrier, bool warp_barrier) {
  int* const shared = dynamic_shared<int>();
  const unsigned int i = threadIdx.x;
  shared[i] = static_cast<int>(i);
  if (block_barrier) __syncthreads();
  const int other = shared[(i + 32) % 64];
  __syncthreads();
  shared[i] = other;
  if (warp_barrier) __syncwarp();
  out[i] = shared[i / 32 * 32 + (i + 1) % 32];
}

__global__ void count_threads_kernel(int* sum) {
  atomicAdd(sum, 1);
}

__global__ void add_kernel(float* x, const float* y, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] += y[i];
}

}  // namespace

void number_threads(DeviceContext& device, std::int64_t* ids, std::int64_t n, unsigned int blocks,
                    unsigned int threads) {
  launch(device, number_threads_kernel, blocks, threads, 0, ids, n);
}

void sum_blocks(DeviceContext& device, const float* x, float* sums, unsigned int blocks, unsigned int threads) {
  launch(device, sum_blocks_kernel, blocks, threads, threads * sizeof(float), x, sums);
}

void sum_warps(DeviceContext& device, const int* x, int* out, unsigned int threads) {
  launch(device, sum_warps_kernel, 1, threads, 0, x, out);
}

void shuffle_lanes(DeviceContext& device, int* out) {
  launch(device, shuffle_lanes_kernel, 1, 32, 0, out);
}

void read_shared_memory(DeviceContext& device, float* out, unsigned int blocks) {
  launch(device, read_shared_memory_kernel, blocks, 1, sizeof(float), out);
}

void record_order(DeviceContext& device, int* order) {
  launch(device, note_order_kernel, 1, 256, 0, order);
}

void rotate(DeviceContext& device, int* out, Barriers barriers) {
  launch(device, rotate_kernel, 1, 64, 64 * sizeof(int), out, barriers != Barriers::none_of_block,
         barriers != Barriers::none_of_warp);
}

void count_threads(DeviceContext& device, int* sum, unsigned int blocks, unsigned int threads) {
  launch(device, count_threads_kernel, blocks, threads, 0, sum);
}

void add(DeviceContext& device, float* x, const float* y, std::int64_t n) {
  launch(device, add_kernel, static_cast<unsigned int>((n + 127) / 128), 128, 0, x, y, n);
}

void wait_for_ever(DeviceContext& device) {
  launch(device, wait_for_ever_kernel, 1, 64, 0);
}

}  // namespace ddprun::testing
