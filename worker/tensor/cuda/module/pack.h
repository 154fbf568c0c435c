#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "common/host_device.h"

namespace ddprun::cuda {

// Neighbouring elements that one instruction loads or stores where they are aligned as a whole.
template <class T, int size>
struct alignas(sizeof(T) * size) Pack {
  T elements[size];
};

// The number of elements of each type that a thread moves at once: 16 bytes of the widest type.
template <class... T>
inline constexpr int pack_size = 16 / static_cast<int>(std::max({sizeof(T)...}));

template <int size, class T>
DDPRUN_HOST_DEVICE bool is_aligned(const T* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) % (sizeof(T) * size) == 0;
}

// Accesses elements one by one where they are not aligned, so that a thread has the same elements either way. On the
// host, which emulates a device, GCC 14 would vectorize that as if they were aligned: the bytes are copied there.
template <int size, class T>
DDPRUN_HOST_DEVICE Pack<T, size> load_pack(const T* from, bool aligned) {
  Pack<T, size> result;
#ifdef __CUDA_ARCH__
  if (aligned) return *reinterpret_cast<const Pack<T, size>*>(from);
  for (int i = 0; i < size; ++i) result.elements[i] = from[i];
#else
  if (aligned && !is_aligned<size>(from)) __builtin_trap();  // as a device does
  std::memcpy(&result, from, sizeof result);
#endif
  return result;
}

template <int size, class T>
DDPRUN_HOST_DEVICE void store_pack(const Pack<T, size>& pack, T* to, bool aligned) {
#ifdef __CUDA_ARCH__
  if (aligned) {
    *reinterpret_cast<Pack<T, size>*>(to) = pack;
    return;
  }
  for (int i = 0; i < size; ++i) to[i] = pack.elements[i];
#else
  if (aligned && !is_aligned<size>(to)) __builtin_trap();
  std::memcpy(to, &pack, sizeof pack);
#endif
}

// out[k] = f(x[k]...)
template <class Out, int size, class F, class... In>
DDPRUN_HOST_DEVICE Pack<Out, size> map_packs(const F& f, const Pack<In, size>&... x) {
  Pack<Out, size> out;
  for (int k = 0; k < size; ++k) out.elements[k] = Out(f(x.elements[k]...));
  return out;
}

}  // namespace ddprun::cuda
