#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/tensor/cuda/module/device.h"

namespace ddprun::cuda {

// Memory for so many results that the kernels of one operation pass on.
template <class T>
Scratch scratch_for(DeviceContext& device, std::int64_t count) {
  return Scratch(device.memory, static_cast<std::size_t>(count) * sizeof(T));
}

}  // namespace ddprun::cuda
