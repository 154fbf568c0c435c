#pragma once

#include <cstdint>

#include "worker/autograd/checkpoint.h"
#include "worker/autograd/variable.h"
#include "worker/tensor/kernels.h"

namespace ddprun {

struct ConvOptions {
  std::int64_t stride = 1;    // in both directions
  std::int64_t padding = 0;   // zeros on each side
  std::int64_t dilation = 1;  // distance between the elements of a window
  std::int64_t groups = 1;    // output channels of a group see only the input channels of that group
};

// input (batch, in, height, width), weight (out, in / groups, kh, kw), bias (out) or undefined -> (batch, out, oh, ow)
// with oh = (height + 2 padding - dilation (kh - 1) - 1) / stride + 1, rounded down. Cross-correlation, as PyTorch's
// conv2d.
Variable conv2d(const Variable& input, const Variable& weight, const Variable& bias = {}, ConvOptions options = {});

// Returns the sizes of such a convolution of an input and a weight of these shapes. Throws Errc::mismatch for shapes
// that do not fit, Errc::usage for options that are not possible.
kernels::ConvGeometry conv_geometry(const Shape& input, const Shape& weight, const ConvOptions& options);

// While one exists on a thread, its convolutions may use Winograd's algorithm (or may not, within such a scope) where
// the processor has a fast one: the 3x3 ones then take less time, and lose some of float32's accuracy.
class WinogradScope final : public autograd::ContextScope {
 public:
  explicit WinogradScope(bool allowed = true);
  ~WinogradScope();

  static bool allowed();  // on this thread

 private:
  Maker maker() const override;

  const bool allowed_;
  const bool before_;
};

struct PoolOptions {
  std::int64_t kernel = 2;
  std::int64_t stride = 0;   // 0 means the kernel's size
  std::int64_t padding = 0;  // never chosen as the maximum; at most half the kernel
};

// input (batch, channels, height, width) -> (batch, channels, oh, ow). The gradient goes to the first maximum in a
// window.
Variable max_pool2d(const Variable& input, PoolOptions options = {});
// The mean over each window; zeros of the padding count.
Variable avg_pool2d(const Variable& input, PoolOptions options = {});
// (batch, channels, out_height, out_width): each output is the mean over its share of the input; 1 x 1: over all of it.
Variable adaptive_avg_pool2d(const Variable& input, std::int64_t out_height, std::int64_t out_width);

}  // namespace ddprun
