#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ddprun/worker/tensor/cpu/table.h"
#include "ddprun/worker/tensor/cpu/vectorize.h"
#include "ddprun/worker/tensor/onednn/int8_product.h"

// Products of 8-bit integers: activations as x = scale (level - zero), weights as w = scale of its row times an
// integer.
namespace ddprun::cpu {
namespace {

using kernels::ValueRange;

constexpr float top_level = 127;
constexpr std::int64_t lanes = 16;

// Lanes side by side: a minimum in one variable would be one chain of operations.
DDPRUN_VECTORIZED ValueRange range_of(std::int64_t count, const float* x) {
  if (count == 0) return {};
  float low[lanes], high[lanes];
  for (std::int64_t lane = 0; lane < lanes; ++lane) low[lane] = high[lane] = x[0];
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      low[lane] = x[i + lane] < low[lane] ? x[i + lane] : low[lane];
      high[lane] = x[i + lane] > high[lane] ? x[i + lane] : high[lane];
    }
  }
  for (std::int64_t i = whole; i < count; ++i) {
    low[0] = std::min(low[0], x[i]);
    high[0] = std::max(high[0], x[i]);
  }
  return {.min = *std::min_element(low, low + lanes), .max = *std::max_element(high, high + lanes)};
}

struct Levels {
  // 0 is a level itself: padding and what relu cuts off are exact.
  explicit Levels(ValueRange range) {
    const float low = std::min(range.min, 0.0F), high = std::max(range.max, 0.0F);
    if (high > low) scale = (high - low) / top_level;
    zero = static_cast<std::int32_t>(std::lround(-low / scale));
  }
  float scale = 1;
  std::int32_t zero = 0;
};

DDPRUN_VECTORIZED void quantise(std::int64_t count, const float* x, float inverse, float zero, std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float level = x[i] * inverse + zero + 0.5F;
    // NaN becomes the lowest level.
    const float clamped = !(level > 0) ? 0 : level > top_level ? top_level : level;
    out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(clamped));
  }
}

DDPRUN_VECTORIZED void dequantise(std::int64_t rows, std::int64_t columns, const std::int32_t* product,
                                  const Levels& levels, const std::int32_t* weight_sum, const float* scale,
                                  const float* bias, float* out) {
  for (std::int64_t row = 0; row < rows; ++row, product += columns, out += columns) {
    for (std::int64_t j = 0; j < columns; ++j)
      out[j] = static_cast<float>(product[j] - levels.zero * weight_sum[j]) * (levels.scale * scale[j]);
    if (bias == nullptr) continue;
    for (std::int64_t j = 0; j < columns; ++j) out[j] += bias[j];
  }
}

ValueRange value_range(const Tensor& x) {
  return range_of(x.numel(), x.data<float>());
}

void quantised_linear(const Tensor& x, const ValueRange& range, const Tensor& weight, const Tensor& weight_sum,
                      const Tensor& scale, const Tensor& bias, Tensor& out) {
  const Levels levels(range);
  const std::int64_t m = x.size(0), n = weight.size(0);
  Tensor input = Tensor::empty(x.shape(), DType::uint8, x.device());
  quantise(x.numel(), x.data<float>(), 1 / levels.scale, static_cast<float>(levels.zero), input.data<std::uint8_t>());
  Tensor product = Tensor::empty({m, n}, DType::int32, x.device());
  onednn::multiply({.m = m, .n = n, .k = x.size(1)}, input.data<std::uint8_t>(), weight.data<std::int8_t>(),
                   product.data<std::int32_t>());
  dequantise(m, n, product.data<std::int32_t>(), levels, weight_sum.data<std::int32_t>(), scale.data<float>(),
             bias.defined() ? bias.data<float>() : nullptr, out.data<float>());
}

}  // namespace

void add_quantised_products(kernels::Table& table) {
  table.value_range = value_range;
  table.quantised_linear = quantised_linear;
}

}  // namespace ddprun::cpu
