#pragma once

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::onednn {

// The convolutions of kernels::Table for float32 through oneDNN. Primitives are made once for a geometry and kept, for
// each thread. Images are converted where their layout is not the one that the primitive works on.

// (batch, channels, height, width), blocked by so many channels; 0: row-major.
template <class T>
struct Image {
  T* data;
  std::int64_t block;
};

// The layouts on which the convolution works best.
struct ImageBlocks {
  std::int64_t x = 0, y = 0;
};
ImageBlocks preferred_blocks(const kernels::ConvGeometry& geometry);

void conv_forward(const kernels::ConvGeometry& geometry, Image<const float> x, const float* weight, const float* bias,
                  Image<float> y);
void conv_backward_input(const kernels::ConvGeometry& geometry, Image<const float> grad, const float* weight,
                         Image<float> x_grad);
void conv_backward_weight(const kernels::ConvGeometry& geometry, Image<const float> x, Image<const float> grad,
                          float* weight_grad, bool accumulate);

}  // namespace ddprun::onednn
