#pragma once

#include <cstdint>

#include "worker/tensor/cuda/module/launch.h"

// Reductions within a warp and a block. Every thread of the warp or block takes part, and gets the result; the order
// is fixed.
namespace ddprun::cuda {

inline constexpr int warp_size = 32;
inline constexpr unsigned whole_warp = 0xffffffff;

template <class T>
__device__ T shuffle_xor(T value, int lanes) {
  return __shfl_xor_sync(whole_warp, value, lanes);
}

template <class T, class Combine>
__device__ T reduce_warp(T value, const Combine& combine) {
  for (int lanes = warp_size / 2; lanes > 0; lanes /= 2) value = combine(value, shuffle_xor(value, lanes));
  return value;
}

template <int threads, class T, class Combine>
__device__ T reduce_block(T value, const Combine& combine) {
  constexpr int warps = threads / warp_size;
  __shared__ T of_warp[warps];
  value = reduce_warp(value, combine);
  if (threadIdx.x % warp_size == 0) of_warp[threadIdx.x / warp_size] = value;
  __syncthreads();
  T result = of_warp[0];
  for (int warp = 1; warp < warps; ++warp) result = combine(result, of_warp[warp]);
  __syncthreads();  // of_warp may be written again by the next reduction
  return result;
}

// Reduces among so many neighbouring threads: a warp or the block.
template <int threads, class T, class Combine>
__device__ T reduce_group(T value, const Combine& combine) {
  if constexpr (threads == warp_size)
    return reduce_warp(value, combine);
  else
    return reduce_block<threads>(value, combine);
}

struct Plus {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};

}  // namespace ddprun::cuda
