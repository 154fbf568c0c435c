#pragma once

// The part of CUDA C++ that this project uses, for the emulator: a kernel is a function of C++, whose threads run one
// after the other and change places at barriers (block.h).
#include <bit>
#include <cstdint>
#include <cstring>
#include <cuda_runtime_api.h>
#include <functional>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
// One block runs at a time, so its shared memory may be static.
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

struct uint3 {
  unsigned int x, y, z;
};
struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};

typedef struct cudaLaunchAttribute_st cudaLaunchAttribute;
typedef struct cudaLaunchConfig_st {
  dim3 gridDim;
  dim3 blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned int numAttrs;
} cudaLaunchConfig_t;

namespace ddprun::cuda::emulator {

// Queues the kernel, whose call for one thread is `thread`.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread);

enum class Source : std::uint8_t { index, exclusive_or, down, up };

void block_barrier();
void warp_barrier(unsigned int mask);
std::uint64_t shuffle(unsigned int mask, std::uint64_t bits, Source source, int operand, int width);
unsigned int ballot(unsigned int mask, bool predicate);
void* dynamic_shared_memory();

template <class T>
T shuffled(unsigned int mask, T value, Source source, int operand, int width) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = shuffle(mask, bits, source, operand, width);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace ddprun::cuda::emulator

// The indices of the thread that runs.
extern uint3 threadIdx __attribute__((visibility("hidden")));
extern uint3 blockIdx __attribute__((visibility("hidden")));
extern dim3 blockDim __attribute__((visibility("hidden")));
extern dim3 gridDim __attribute__((visibility("hidden")));
inline constexpr int warpSize = 32;

inline void __syncthreads() {
  ddprun::cuda::emulator::block_barrier();
}
inline void __syncwarp(unsigned int mask = 0xffffffff) {
  ddprun::cuda::emulator::warp_barrier(mask);
}
template <class T>
T __shfl_sync(unsigned int mask, T value, int source_lane, int width = warpSize) {
  return ddprun::cuda::emulator::shuffled(mask, value, ddprun::cuda::emulator::Source::index, source_lane, width);
}
template <class T>
T __shfl_xor_sync(unsigned int mask, T value, int lane_mask, int width = warpSize) {
  return ddprun::cuda::emulator::shuffled(mask, value, ddprun::cuda::emulator::Source::exclusive_or, lane_mask, width);
}
template <class T>
T __shfl_down_sync(unsigned int mask, T value, unsigned int delta, int width = warpSize) {
  return ddprun::cuda::emulator::shuffled(mask, value, ddprun::cuda::emulator::Source::down, static_cast<int>(delta),
                                          width);
}
template <class T>
T __shfl_up_sync(unsigned int mask, T value, unsigned int delta, int width = warpSize) {
  return ddprun::cuda::emulator::shuffled(mask, value, ddprun::cuda::emulator::Source::up, static_cast<int>(delta),
                                          width);
}
inline unsigned int __ballot_sync(unsigned int mask, int predicate) {
  return ddprun::cuda::emulator::ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned int mask, int predicate) {
  return ddprun::cuda::emulator::ballot(mask, predicate != 0) != 0;
}
inline int __all_sync(unsigned int mask, int predicate) {
  return ddprun::cuda::emulator::ballot(mask, predicate == 0) == 0;
}
inline int __popc(unsigned int x) {
  return std::popcount(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}

// This takes only integers: sums of floating-point numbers must not depend on an order.
inline int atomicAdd(int* address, int value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned int atomicAdd(unsigned int* address, unsigned int value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicAdd(unsigned long long* address, unsigned long long value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
inline void __threadfence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...), Actual&&... arguments) {
  return [&](Expected... converted) {
    return ddprun::cuda::emulator::launch(*config, reinterpret_cast<const void*>(kernel),
                                          [=] { kernel(converted...); });
  }(std::forward<Actual>(arguments)...);
}

template <class T>
cudaError_t cudaFuncSetAttribute(T* function, cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(function), attribute, value);
}
