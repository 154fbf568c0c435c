#pragma once

#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/cuda/module/device.h"

namespace ddprun::cuda {

// Sets to, of float32, to the values of from, of 16 bits, or adds them to it; both are dense.
void widen(DeviceContext& device, const View& from, const View& to, bool accumulate);

}  // namespace ddprun::cuda
