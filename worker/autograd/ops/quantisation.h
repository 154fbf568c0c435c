#pragma once

#include <cstddef>
#include <cstdint>

#include "ddprun/worker/autograd/variable.h"

// Quantisation-aware training (Jacob et al. 2018): numbers that are rounded as 8-bit integers will round them, in
// floating point.
namespace ddprun {

struct QuantizeOptions {
  double scale = 1;
  std::int64_t zero = 0;                 // the level of 0
  std::int64_t lowest = 0, highest = 0;  // levels
};

// scale (level - zero) with level = floor(x / scale + zero + 0.5), clamped. The gradient passes straight through, but
// not where x is beyond the levels. PyTorch's fake_quantize_per_tensor_affine, which rounds halves to even.
Variable fake_quantize(const Variable& input, const QuantizeOptions& options);

// A weight of int8 is between -127 and 127 times the scale of its output.
inline constexpr std::int64_t largest_weight_level = 127;
// For each index of the dimension the largest magnitude / 127, and 1 where all is 0. Of the weight's type.
Tensor weight_scales(const Tensor& weight, std::size_t dimension);

// Each slice of the dimension with the scale that weight_scales() has for it. The scales carry no gradient.
Variable fake_quantize_channels(const Variable& weight, std::size_t dimension);

}  // namespace ddprun
