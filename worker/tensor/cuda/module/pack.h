#pragma once

#include <algorithm>
#include <cstdint>

#include "ddprun/common/host_device.h"

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

// Accesses elements one by one where they are not aligned, so that a thread has the same elements either way.
template <int size, class T>
DDPRUN_HOST_DEVICE Pack<T, size> load_pack(const T* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const Pack<T, size>*>(from);
  Pack<T, size> result;
  for (int i = 0; i < size; ++i) result.elements[i] = from[i];
  return result;
}

template <int size, class T>
DDPRUN_HOST_DEVICE void store_pack(const Pack<T, size>& pack, T* to, bool aligned) {
  if (aligned) {
    *reinterpret_cast<Pack<T, size>*>(to) = pack;
    return;
  }
  for (int i = 0; i < size; ++i) to[i] = pack.elements[i];
}

// out[k] = f(x[k]...)
template <class Out, int size, class F, class... In>
DDPRUN_HOST_DEVICE Pack<Out, size> map_packs(const F& f, const Pack<In, size>&... x) {
  Pack<Out, size> out;
  for (int k = 0; k < size; ++k) out.elements[k] = Out(f(x.elements[k]...));
  return out;
}

}  // namespace ddprun::cuda
