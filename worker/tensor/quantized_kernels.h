#pragma once

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

// Products with weights of 8 bits of the table (kernels.h).
struct QuantizedKernels {
  // The range of a float32 tensor; from 0 to 0 for a tensor without elements.
  Entry<ValueRange(In x)> value_range{"value_range"};
  // out (m, n) = x (m, k) times weight (n, k) transposed, times scale (n), plus bias (n) or undefined. weight is int8,
  // weight_sum int32 the sums of its rows, the others float32. x is rounded to the levels, and clamped to them.
  Entry<void(In x, const Levels&, In weight, In weight_sum, In scale, In bias, Tensor& out)> quantized_linear{
      "quantized_linear"};
  // Does the same with (out, in / groups, kh, kw) as weight; the others are by output channel; images are row-major.
  Entry<Tensor(const ConvGeometry&, In x, const Levels&, In weight, In weight_sum, In scale, In bias)> quantized_conv2d{
      "quantized_conv2d"};
};

}  // namespace ddprun::kernels
