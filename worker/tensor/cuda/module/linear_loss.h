#pragma once

#include "worker/tensor/cuda/device_api.h"
#include "worker/tensor/cuda/module/device.h"

// An output layer and its loss, as in DeviceApi, and the kernels that it is made of. linear_loss.cc, linear_loss.cu
namespace ddprun::cuda {

void linear_cross_entropy(DeviceContext& device, const View& input, const View& weight, const View& targets,
                          const kernels::LinearLossOptions& options, const View& loss, const View& share,
                          const View& input_grad, const View& weight_grad);

// losses (rows), float64: the loss of each row of scores (rows, classes), 0 for one that does not count. gradients:
// scores become the gradients of these losses.
void score_losses(DeviceContext& device, const View& scores, const View& targets,
                  const kernels::CrossEntropyOptions& options, double* losses, bool gradients);
// Finds the mean over the rows that count, and 1 / their number, or 0 if there are none.
void mean_loss(DeviceContext& device, std::int64_t rows, const double* losses, const View& targets,
               std::int64_t ignore_index, const View& loss, const View& share);
void scale_by(DeviceContext& device, const View& x, const View& a, const View& b, const View& out, bool accumulate);

}  // namespace ddprun::cuda
