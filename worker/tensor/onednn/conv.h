#pragma once

#include "worker/tensor/kernels.h"

namespace ddprun::onednn {

// The convolutions of kernels::Table through oneDNN, for float32, and for bfloat16 where convolves_fast(): sums are
// float32, and so are gradients of weights. Primitives are made once for a geometry and kept, for each thread. Images
// are converted where their layout is not the one that the primitive works on.

// Returns whether this processor convolves images of this 16-bit type faster than float32.
bool convolves_fast(const kernels::ConvGeometry& geometry, DType dtype);

// An image (batch, channels, height, width), blocked by so many channels; 0 for row-major.
template <class T>
struct Image {
  T* data;
  std::int64_t block;
};

// The layouts on which the convolution works best.
struct ImageBlocks {
  std::int64_t x = 0, y = 0;
};
ImageBlocks preferred_blocks(const kernels::ConvGeometry& geometry, DType dtype);

void conv_forward(const kernels::ConvGeometry& geometry, DType dtype, Image<const void> x, const void* weight,
                  const void* bias, Image<void> y);
void conv_backward_input(const kernels::ConvGeometry& geometry, DType dtype, Image<const void> grad, const void* weight,
                         Image<void> x_grad);
void conv_backward_weight(const kernels::ConvGeometry& geometry, DType dtype, Image<const void> x,
                          Image<const void> grad, float* weight_grad, bool accumulate);

}  // namespace ddprun::onednn
