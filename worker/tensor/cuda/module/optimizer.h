#pragma once

#include "ddprun/worker/tensor/cuda/device_api.h"

// Steps of optimizers, in place; as in DeviceApi.
namespace ddprun::cuda {

void sgd_step(DeviceContext& device, const View& value, const View& grad, const View& momentum,
              const kernels::SgdStep& step);
void adam_step(DeviceContext& device, const View& value, const View& grad, const View& average,
               const View& square_average, const kernels::AdamStep& step);

}  // namespace ddprun::cuda
