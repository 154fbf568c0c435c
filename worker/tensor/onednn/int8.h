#pragma once

#include <compare>
#include <cstdint>

#include "worker/tensor/kernels.h"

// Products of 8-bit integers, exact where the first factor is at most 127. Primitives are made once for their sizes and
// kept, for each thread.
namespace ddprun::onednn {

// Sizes of out (m, n) = a (m, k) b (n, k) transposed, row-major.
struct Int8Product {
  std::int64_t m, n, k;
  friend auto operator<=>(const Int8Product&, const Int8Product&) = default;
};

void multiply(const Int8Product& product, const std::uint8_t* a, const std::int8_t* b, std::int32_t* out);

// Computes y (batch, oh, ow, out) = x (batch, height, width, in) and weight (out, in / groups, kh, kw). REQUIRES: no
// padding, and windows that cover the whole image.
void convolve(const kernels::ConvGeometry& geometry, const std::uint8_t* x, const std::int8_t* weight, std::int32_t* y);

}  // namespace ddprun::onednn
