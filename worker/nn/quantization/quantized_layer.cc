#include "worker/nn/quantization/quantized_layer.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "common/error.h"
#include "worker/autograd/ops/quantization.h"

namespace ddprun::nn {
namespace {

void check_host(const Tensor& tensor) {
  if (tensor.device().type == DeviceType::cpu) return;
  throw make_error(Errc::unsupported, "a layer with a weight of 8 bits runs on the CPU, not on {}",
                   to_string(tensor.device()));
}

// Returns the weight row-major, the outputs first.
Tensor weight_by_output(const WeightedLayer& layer) {
  const Tensor weight = layer.weight().value().to(DType::float32);
  return weight.transpose(0, static_cast<std::int64_t>(layer.output_dimension())).contiguous();
}

Tensor integers(const Tensor& weight, const Tensor& scale) {
  constexpr auto largest = static_cast<float>(largest_weight_level);
  const std::int64_t rows = weight.size(0), columns = weight.numel() / rows;
  Tensor result = Tensor::empty(weight.shape(), DType::int8);
  const auto* from = weight.data<float>();
  auto* to = result.data<std::int8_t>();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      to[i] = static_cast<std::int8_t>(
          std::clamp(std::floor(from[i] / scale.data<float>()[row] + 0.5F), -largest, largest));
  }
  return result;
}

}  // namespace

QuantizedLayer::QuantizedLayer(const WeightedLayer& layer, std::optional<kernels::ValueRange> input) {
  check_host(layer.weight().value());
  const Tensor weight = weight_by_output(layer);
  Tensor scale = weight_scales(weight, 0);
  weight_ = register_buffer("weight", integers(weight, scale));
  scale_ = register_buffer("weight_scale", std::move(scale));
  if (layer.bias().defined()) bias_ = register_buffer("bias", layer.bias().value().to(DType::float32).clone());
  if (input)
    input_range_ = register_buffer("input_range", Tensor::from(std::vector<float>{input->min, input->max}, {2}));
}

Variable QuantizedLayer::forward(const Variable& input) {
  if (grad_enabled() && input.requires_grad())
    throw make_error(Errc::usage, "a quantized layer has no gradient: it can be evaluated, not trained");
  check_host(input.value());
  const Tensor x = input.value().to(DType::float32).contiguous();
  return Variable(product(x, kernels::levels_of(range_for(x))));
}

kernels::ValueRange QuantizedLayer::range_for(const Tensor& input) const {
  if (!input_range_.defined()) return kernels::of(input).value_range(input);
  const auto* bounds = input_range_.value().data<float>();
  return {.min = bounds[0], .max = bounds[1]};
}

const Tensor& QuantizedLayer::weight_sum() {
  if (weight_sum_.defined() && summed_version_ == weight().version()) return weight_sum_;
  const std::int64_t rows = weight().size(0), columns = weight().numel() / rows;
  weight_sum_ = Tensor::empty({rows}, DType::int32);
  summed_version_ = weight().version();
  const auto* row = weight().data<std::int8_t>();
  for (std::int64_t i = 0; i < rows; ++i, row += columns)
    weight_sum_.data<std::int32_t>()[i] = std::accumulate(row, row + columns, std::int32_t{0});
  return weight_sum_;
}

}  // namespace ddprun::nn
