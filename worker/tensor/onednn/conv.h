#pragma once

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::onednn {

// The convolutions of kernels::Table for float32 through oneDNN. Primitives are made once for a geometry and kept, for
// each thread.
void conv_forward(const kernels::ConvGeometry& geometry, const float* x, const float* weight, const float* bias,
                  float* y);
void conv_backward_input(const kernels::ConvGeometry& geometry, const float* grad, const float* weight, float* x_grad);
void conv_backward_weight(const kernels::ConvGeometry& geometry, const float* x, const float* grad, float* weight_grad,
                          bool accumulate);

}  // namespace ddprun::onednn
