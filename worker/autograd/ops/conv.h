#pragma once

#include <cstdint>

#include "ddprun/worker/autograd/variable.h"

namespace ddprun {

struct ConvOptions {
  std::int64_t stride = 1;   // in both directions
  std::int64_t padding = 0;  // zeros on each side
};

// input (batch, in, height, width), weight (out, in, kh, kw), bias (out) or undefined -> (batch, out, oh, ow) with
// oh = (height + 2 padding - kh) / stride + 1, rounded down. Cross-correlation, as everybody's conv2d.
Variable conv2d(const Variable& input, const Variable& weight, const Variable& bias = {}, ConvOptions options = {});

struct PoolOptions {
  std::int64_t kernel = 2;
  std::int64_t stride = 0;   // 0: the kernel's size
  std::int64_t padding = 0;  // never chosen as the maximum; at most half the kernel
};

// input (batch, channels, height, width) -> (batch, channels, oh, ow). The gradient goes to the first maximum in a
// window.
Variable max_pool2d(const Variable& input, PoolOptions options = {});

}  // namespace ddprun
