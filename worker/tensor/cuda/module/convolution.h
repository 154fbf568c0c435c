#pragma once

#include "worker/tensor/cuda/device_api.h"

// Convolutions by cuDNN, of row-major images, only by deterministic algorithms. They are entries of DeviceApi with the
// same names.
namespace ddprun::cuda {

void conv2d(DeviceContext& device, const kernels::ConvGeometry& geometry, const View& x, const View& weight,
            const View& bias, const View& out);
void conv2d_backward_input(DeviceContext& device, const kernels::ConvGeometry& geometry, const View& grad,
                           const View& weight, const View& out);
void conv2d_backward_weight(DeviceContext& device, const kernels::ConvGeometry& geometry, const View& x,
                            const View& grad, const View& weight_grad, bool accumulate);

}  // namespace ddprun::cuda
