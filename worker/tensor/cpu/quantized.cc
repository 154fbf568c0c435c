#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/rounding.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/onednn/int8.h"

// Products of 8-bit integers: activations as x = scale (level - zero), weights as w = scale of its row times an
// integer.
namespace ddprun::cpu {
namespace {

using kernels::ConvGeometry;
using kernels::Levels;
using kernels::ValueRange;

constexpr std::int64_t lanes = 16;

// The lanes are side by side: a minimum in one variable would be one chain of operations.
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

DDPRUN_VECTORIZED void quantize(std::int64_t count, const float* x, const Levels& levels, std::uint8_t* out) {
  constexpr auto highest = static_cast<float>(Levels::highest);
  const float inverse = 1 / levels.scale, zero = static_cast<float>(levels.zero);
  for (std::int64_t i = 0; i < count; ++i) {
    const float level = x[i] * inverse + zero + 0.5F;
    // NaN becomes the lowest level.
    const float clamped = !(level > 0) ? 0 : level > highest ? highest : level;
    out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(clamped));
  }
}

DDPRUN_VECTORIZED void dequantize(std::int64_t rows, std::int64_t columns, const std::int32_t* product,
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

// Returns a row-major tensor as levels.
Tensor quantized(const Tensor& x, const Levels& levels) {
  Tensor result = Tensor::empty(x.shape(), DType::uint8, x.device());
  quantize(x.numel(), x.data<float>(), levels, result.data<std::uint8_t>());
  return result;
}

const float* data_or_null(const Tensor& bias) {
  return bias.defined() ? bias.data<float>() : nullptr;
}

void quantized_linear(const Tensor& x, const Levels& levels, const Tensor& weight, const Tensor& weight_sum,
                      const Tensor& scale, const Tensor& bias, Tensor& out) {
  const std::int64_t m = x.size(0), n = weight.size(0);
  const Tensor input = quantized(x, levels);
  Tensor product = Tensor::empty({m, n}, DType::int32, x.device());
  onednn::multiply({.m = m, .n = n, .k = x.size(1)}, input.data<std::uint8_t>(), weight.data<std::int8_t>(),
                   product.data<std::int32_t>());
  dequantize(m, n, product.data<std::int32_t>(), levels, weight_sum.data<std::int32_t>(), scale.data<float>(),
             data_or_null(bias), out.data<float>());
}

// The pixels of an image that a convolution reads: those at step y - padding for y below height, and by the same rule
// for columns; beyond the image they are 0. oneDNN then has no padding, whose value would not be 0 but the level of 0,
// and no convolution of 1x1 with a stride, for which its 2.6 writes beyond its memory with channels last.
struct Pixels {
  explicit Pixels(const ConvGeometry& g)
      : step(g.kernel_h == 1 && g.kernel_w == 1 ? g.stride : 1),
        stride(g.stride / step),
        height((g.out_h - 1) * stride + (g.kernel_h - 1) * g.dilation + 1),
        width((g.out_w - 1) * stride + (g.kernel_w - 1) * g.dilation + 1) {}
  std::int64_t step, stride, height, width;
};

// The number of pixels that lie before the image, and the number that do not lie behind it.
struct Inside {
  Inside(std::int64_t step, std::int64_t padding, std::int64_t size, std::int64_t pixels)
      : first(std::min(divide_up(padding, step), pixels)),
        last(std::clamp((size - 1 + padding) / step + 1, first, pixels)) {}
  std::int64_t first, last;
};

// Copies from (batch, channels, height, width) to (batch, height, width, channels) of the pixels.
void gather_pixels(const ConvGeometry& g, const Pixels& pixels, const std::uint8_t* x, std::uint8_t zero,
                   std::uint8_t* out) {
  const Inside rows(pixels.step, g.padding, g.height, pixels.height);
  const Inside columns(pixels.step, g.padding, g.width, pixels.width);
  const std::int64_t channels = g.in_channels, row_size = pixels.width * channels;
  std::fill_n(out, g.batch * pixels.height * row_size, zero);
  for (std::int64_t n = 0; n < g.batch; ++n, x += channels * g.height * g.width, out += pixels.height * row_size) {
    for (std::int64_t y = rows.first; y < rows.last; ++y) {
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        const auto* from = x + (channel * g.height + y * pixels.step - g.padding) * g.width - g.padding;
        auto* to = out + y * row_size + channel;
        for (std::int64_t column = columns.first; column < columns.last; ++column)
          to[column * channels] = from[column * pixels.step];
      }
    }
  }
}

// Goes from (batch, pixels, channels) to (batch, channels, pixels), by parts of an image that stay in the cache.
DDPRUN_VECTORIZED void dequantize_images(std::int64_t batch, std::int64_t pixels, std::int64_t channels,
                                         const std::int32_t* product, const Levels& levels,
                                         const std::int32_t* weight_sum, const float* scale, const float* bias,
                                         float* out) {
  constexpr std::int64_t part = 64;
  for (std::int64_t n = 0; n < batch; ++n, product += pixels * channels, out += pixels * channels) {
    for (std::int64_t begin = 0; begin < pixels; begin += part) {
      const std::int64_t end = std::min(begin + part, pixels);
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        const std::int32_t shift = levels.zero * weight_sum[channel];
        const float factor = levels.scale * scale[channel], offset = bias != nullptr ? bias[channel] : 0;
        for (std::int64_t pixel = begin; pixel < end; ++pixel)
          out[channel * pixels + pixel] =
              static_cast<float>(product[pixel * channels + channel] - shift) * factor + offset;
      }
    }
  }
}

Tensor quantized_conv2d(const ConvGeometry& g, const Tensor& x, const Levels& levels, const Tensor& weight,
                        const Tensor& weight_sum, const Tensor& scale, const Tensor& bias) {
  const Tensor input = quantized(x, levels);
  const Pixels pixels(g);
  Tensor image = Tensor::empty({g.batch, pixels.height, pixels.width, g.in_channels}, DType::uint8, x.device());
  gather_pixels(g, pixels, input.data<std::uint8_t>(), static_cast<std::uint8_t>(levels.zero),
                image.data<std::uint8_t>());
  ConvGeometry inner = g;
  inner.height = pixels.height;
  inner.width = pixels.width;
  inner.stride = pixels.stride;
  inner.padding = 0;
  inner.winograd = false;
  Tensor product = Tensor::empty({g.batch, g.out_h, g.out_w, g.out_channels}, DType::int32, x.device());
  onednn::convolve(inner, image.data<std::uint8_t>(), weight.data<std::int8_t>(), product.data<std::int32_t>());
  Tensor out = Tensor::empty({g.batch, g.out_channels, g.out_h, g.out_w}, DType::float32, x.device());
  dequantize_images(g.batch, g.out_h * g.out_w, g.out_channels, product.data<std::int32_t>(), levels,
                    weight_sum.data<std::int32_t>(), scale.data<float>(), data_or_null(bias), out.data<float>());
  return out;
}

}  // namespace

void add_quantized_products(kernels::Table& table) {
  table.value_range = value_range;
  table.quantized_linear = quantized_linear;
  table.quantized_conv2d = quantized_conv2d;
}

}  // namespace ddprun::cpu
