#pragma once

#include <cstdint>

#include "worker/tensor/cuda/device_api.h"

namespace ddprun::cuda {

inline std::int64_t element_count(const View& view) {
  std::int64_t count = 1;
  for (int i = 0; i < view.rank; ++i) count *= view.shape[static_cast<std::size_t>(i)];
  return count;
}

template <class T>
const T* elements(const View& view) {
  return static_cast<const T*>(view.data);
}
// A View does not own its memory: results are written through a const one.
template <class T>
T* writable(const View& view) {
  return static_cast<T*>(view.data);
}

}  // namespace ddprun::cuda
