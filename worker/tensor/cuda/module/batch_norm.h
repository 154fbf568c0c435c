#pragma once

#include "worker/tensor/cuda/device_api.h"

// Batch normalization by own kernels: cuDNN's compute statistics and result in one call, and between them all ranks may
// have to agree on the statistics. They are entries of DeviceApi with the same names.
namespace ddprun::cuda {

void batch_statistics(DeviceContext& device, const View& x, std::int64_t outer, std::int64_t inner, double eps,
                      const View& mean, const View& inverse, const View& variance);
void inverse_deviation(DeviceContext& device, const View& variance, double eps, const View& out);
void batch_norm(DeviceContext& device, const View& x, std::int64_t outer, std::int64_t inner, const View& mean,
                const View& inverse, const View& weight, const View& bias, const View& out);
void batch_norm_backward(DeviceContext& device, const View& x, const View& grad, std::int64_t outer, std::int64_t inner,
                         const View& mean, const View& inverse, const View& weight, bool training, const View& x_grad,
                         const View& weight_grad, const View& bias_grad);

}  // namespace ddprun::cuda
