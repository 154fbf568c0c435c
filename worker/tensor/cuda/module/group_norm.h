#pragma once

#include "worker/tensor/cuda/device_api.h"

// Normalization of rows: layer, RMS and group normalization.
namespace ddprun::cuda {

void group_norm(DeviceContext& device, const View& x, const kernels::Axis& groups, bool centred, double eps,
                const View& weight, const View& bias, const View& mean, const View& inverse, const View& out);
void group_norm_backward(DeviceContext& device, const View& x, const View& grad, const kernels::Axis& groups,
                         bool centred, const View& mean, const View& inverse, const View& weight, const View& x_grad,
                         const View& weight_grad, const View& bias_grad);
void row_norm_backward(DeviceContext& device, const View& x, const View& grad, const View& addend,
                       const kernels::Axis& rows, bool centred, const View& mean, const View& inverse,
                       const View& weight, const View& x_grad, const View& x_copy, const View& weight_grad,
                       bool accumulate_weight, const View& bias_grad, bool accumulate_bias);

}  // namespace ddprun::cuda
