#pragma once

#include "worker/tensor/cuda/module/check.h"
#include "worker/tensor/cuda/module/device.h"
#include "worker/tensor/cuda/module/views.h"

namespace ddprun::cuda {

// Sets dense memory to zero.
inline void zero(DeviceContext& device, const View& view) {
  const std::size_t bytes = static_cast<std::size_t>(element_count(view)) * size_of(view.dtype);
  if (bytes > 0) check(cudaMemsetAsync(view.data, 0, bytes, device.stream()), "cudaMemsetAsync");
}

}  // namespace ddprun::cuda
