#pragma once

#include <cstdint>

#include "worker/tensor/kernels.h"

namespace ddprun::onednn {

// Computes y (batch, oh, ow, out) = x (batch, height, width, in) and weight (out, in / groups, kh, kw). It is exact
// where x is at most 127. Primitives are made once for their geometry and kept, for each thread. REQUIRES: no padding,
// and windows that cover the whole image.
void convolve(const kernels::ConvGeometry& geometry, const std::uint8_t* x, const std::int8_t* weight, std::int32_t* y);

}  // namespace ddprun::onednn
