#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "worker/autograd/variable.h"

// Quantization-aware training (Jacob et al. 2018): numbers that will be rounded as 8-bit integers are rounded in
// training already, in floating point.
namespace ddprun {

struct QuantizeOptions {
  double scale = 1;
  std::int64_t zero = 0;                 // the level of 0
  std::int64_t lowest = 0, highest = 0;  // levels
};

// scale (level - zero) with level = floor(x / scale + zero + 0.5), clamped. The gradient passes straight through, but
// not where x is beyond the levels. PyTorch's fake_quantize_per_tensor_affine, which rounds halves to even.
Variable fake_quantize(const Variable& input, const QuantizeOptions& options);

// Replaces each number by the largest that any of several ranks has at its place.
using ShareMaxima = std::function<void(std::vector<double>&)>;

// An int8 weight is between -127 and 127 times the scale of its output.
inline constexpr std::int64_t largest_weight_level = 127;
// Returns for each index of the dimension the largest magnitude / 127, or 1 where all is 0, in the weight's type.
// share: set if the weight is a part of a whole one, whose scales it returns then.
Tensor weight_scales(const Tensor& weight, std::size_t dimension, const ShareMaxima& share = {});

// Quantizes each slice of the dimension with its scale from weight_scales(). The scales carry no gradient.
Variable fake_quantize_channels(const Variable& weight, std::size_t dimension, const ShareMaxima& share = {});

}  // namespace ddprun
