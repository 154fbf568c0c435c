#pragma once

#include "worker/tensor/cuda/device_api.h"

// Losses of classes and their gradients; they are as in DeviceApi.
namespace ddprun::cuda {

void nll_loss(DeviceContext& device, const View& log_probabilities, const View& targets,
              const kernels::CrossEntropyOptions& options, const View& loss);
void nll_loss_backward(DeviceContext& device, const View& log_probabilities, const View& targets,
                       const kernels::CrossEntropyOptions& options, double factor, const View& out);
void cross_entropy_backward(DeviceContext& device, const View& log_probabilities, const View& targets,
                            const kernels::CrossEntropyOptions& options, double factor, const View& out);

}  // namespace ddprun::cuda
