#pragma once

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

// Convolutions and pooling of the table (kernels.h).
struct ImageKernels {
  // weight (out, in / groups, kh, kw); bias (out) or undefined. Images are dense, the result has the layout that suits
  // the device.
  Entry<Tensor(const ConvGeometry&, In x, In weight, In bias)> conv2d{"conv2d"};
  Entry<Tensor(const ConvGeometry&, In grad, In weight)> conv2d_backward_input{"conv2d_backward_input"};
  Entry<void(const ConvGeometry&, In x, In grad, Tensor& weight_grad, bool accumulate)> conv2d_backward_weight{
      "conv2d_backward_weight"};

  // index, int32 and like the result: the place of the (first) maximum in its plane of x.
  Entry<Tensor(const PoolGeometry&, In x, const Shape& out_shape, Tensor& index)> max_pool2d{"max_pool2d"};
  Entry<Tensor(const PoolGeometry&, In grad, In index, const Shape& in_shape)> max_pool2d_backward{
      "max_pool2d_backward"};
  Entry<Tensor(const PoolGeometry&, In x, const Shape& out_shape)> avg_pool2d{"avg_pool2d"};
  Entry<Tensor(const PoolGeometry&, In grad, const Shape& in_shape)> avg_pool2d_backward{"avg_pool2d_backward"};
  // Output (i, j) is the mean over rows [i height / out_h, ceil((i + 1) height / out_h)), columns likewise.
  Entry<Tensor(const PoolGeometry&, In x, const Shape& out_shape)> adaptive_avg_pool2d{"adaptive_avg_pool2d"};
  Entry<Tensor(const PoolGeometry&, In grad, const Shape& in_shape)> adaptive_avg_pool2d_backward{
      "adaptive_avg_pool2d_backward"};
};

}  // namespace ddprun::kernels
