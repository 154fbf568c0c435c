#pragma once

#include "ddprun/worker/tensor/cuda/device_api.h"
#include "ddprun/worker/tensor/cuda/module/device.h"

namespace ddprun::cuda {

// to, float32, becomes from, of 16 bits, or that is added to it; both dense.
void widen(DeviceContext& device, const View& from, const View& to, bool accumulate);

}  // namespace ddprun::cuda
