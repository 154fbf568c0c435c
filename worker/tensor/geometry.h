#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

// Sizes and options of the operations in kernels.h: plain values that say nothing of tensors, so that code for a device
// can read them too.
namespace ddprun::kernels {

// A dimension of n elements within (outer, n, inner).
struct Axis {
  std::int64_t outer, n, inner;
};

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool varying = false;  // true if the sizes are others at the next call: no code is made for only them
  friend auto operator<=>(const MatmulOptions&, const MatmulOptions&) = default;
};

// Cross-correlation over row-major (batch, channels, height, width).
struct ConvGeometry {
  std::int64_t batch, in_channels, height, width;
  std::int64_t out_channels, kernel_h, kernel_w;
  std::int64_t stride, padding;
  std::int64_t out_h, out_w;
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool winograd = false;  // Winograd's algorithm may be used: faster, and less exact
  friend auto operator<=>(const ConvGeometry&, const ConvGeometry&) = default;
};

struct PoolGeometry {
  std::int64_t planes, height, width;  // planes: batch times channels
  std::int64_t kernel, stride, padding;
  std::int64_t out_h, out_w;
};

struct CrossEntropyOptions {
  double label_smoothing = 0;        // this share of the target's probability is spread over all classes
  std::int64_t ignore_index = -100;  // rows with this target count for nothing
};

struct LinearLossOptions {
  CrossEntropyOptions cross_entropy = {};
  std::int64_t chunk_bytes = std::int64_t{512} << 20;  // about the bytes of scores that exist at a time

  // Returns the number of rows of scores in a chunk: enough for products to be efficient.
  std::int64_t chunk_rows(std::int64_t classes, std::size_t element) const {
    const std::int64_t row = classes * static_cast<std::int64_t>(element);
    return chunk_bytes / row > 128 ? chunk_bytes / row / 128 * 128 : chunk_bytes / row > 1 ? chunk_bytes / row : 1;
  }
};

struct AttentionOptions {
  bool causal = false;  // query i sees the keys up to i + (keys - queries)
  double scale = 1;     // the factor of the scores
};

// The numbers of a tensor lie from min to max.
struct ValueRange {
  float min = 0, max = 0;
};

// The mapping of activations to 8-bit integers: x = scale (level - zero), level from 0 to highest. 0 is a level itself:
// padding and what relu cuts off are exact. There are 7 bits: with 8, pairs of products would overflow 16 bits where
// the processor adds them so.
struct Levels {
  static constexpr std::int32_t highest = 127;
  float scale = 1;
  std::int32_t zero = 0;
};
// Returns the levels over the range, widened to 0.
Levels levels_of(const ValueRange& range);

// Pointers are null, or to one number in the memory of the step's device, which its kernels read when they begin.
// skip: if it is not 0, nothing changes.
struct SgdStep {
  double lr, momentum, weight_decay;
  double dampening = 0;
  bool nesterov = false;
  const float* skip = nullptr;
};
struct AdamStep {
  double lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;             // counted from 1
  std::int64_t freeze_step = 0;  // the square average stays as it is after this step; 0 if it never does
  bool decoupled = false;        // AdamW: the decay shrinks the value, it is not part of the gradient
  const float* skip = nullptr;
  const double* left_out = nullptr;  // as many of the steps counted have changed nothing
};
struct EmaStep {
  double decay;
  bool first = false;  // the average starts as the values
  const float* skip = nullptr;
  const double* made = nullptr;  // the steps that have changed the values: the average starts with the first of them
};

}  // namespace ddprun::kernels
