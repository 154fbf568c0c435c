#include "ddprun/worker/nn/quantisation/quantised_linear.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "ddprun/common/error.h"

namespace ddprun::nn {
namespace {

constexpr float largest = 127;

struct Int8Rows {
  Tensor values;  // int8
  Tensor scale;   // float32, one a row
};

void quantise_row(std::int64_t count, const float* from, std::int8_t* to, float& scale) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(from[i]));
  scale = most > 0 ? most / largest : 1;
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<std::int8_t>(std::clamp(std::nearbyint(from[i] / scale), -largest, largest));
}

Int8Rows quantise_rows(const Tensor& weight) {
  const Tensor from = weight.to(DType::float32).contiguous();
  const std::int64_t rows = from.size(0), columns = from.size(1);
  Int8Rows result{Tensor::empty(from.shape(), DType::int8), Tensor::empty({rows})};
  for (std::int64_t row = 0; row < rows; ++row)
    quantise_row(columns, from.data<float>() + row * columns, result.values.data<std::int8_t>() + row * columns,
                 result.scale.data<float>()[row]);
  return result;
}

}  // namespace

QuantisedLinear::QuantisedLinear(const Module& linear, std::optional<kernels::ValueRange> input) {
  auto rows = quantise_rows(linear.parameter("weight").value());
  weight_ = register_buffer("weight", std::move(rows.values));
  scale_ = register_buffer("weight_scale", std::move(rows.scale));
  for (const auto& [name, parameter] : linear.named_parameters())
    if (name == "bias") bias_ = register_buffer("bias", parameter.value().to(DType::float32).clone());
  if (input)
    input_range_ = register_buffer("input_range", Tensor::from(std::vector<float>{input->min, input->max}, {2}));
}

Variable QuantisedLinear::forward(const Variable& input) {
  if (grad_enabled() && input.requires_grad())
    throw make_error(Errc::usage, "a quantised layer has no gradient: it can be evaluated, not trained");
  const Tensor& weight = weight_.value();
  Shape shape = input.shape();
  if (shape.empty() || shape.back() != weight.size(1))
    throw make_error(Errc::mismatch, "quantised linear: an input of shape {} does not fit a weight of shape {}",
                     to_string(shape), to_string(weight.shape()));
  const Tensor x =
      input.value().to(DType::float32).contiguous().reshape({input.value().numel() / weight.size(1), weight.size(1)});
  Tensor out = Tensor::empty({x.size(0), weight.size(0)}, DType::float32, x.device());
  kernels::of(x).quantised_linear(x, range_for(x), weight, weight_sum(), scale_.value(),
                                  bias_.defined() ? bias_.value() : Tensor(), out);
  shape.back() = weight.size(0);
  return Variable(out.reshape(shape));
}

kernels::ValueRange QuantisedLinear::range_for(const Tensor& input) const {
  if (!input_range_.defined()) return kernels::of(input).value_range(input);
  const auto* bounds = input_range_.value().data<float>();
  return {.min = bounds[0], .max = bounds[1]};
}

const Tensor& QuantisedLinear::weight_sum() {
  const Tensor& weight = weight_.value();
  if (weight_sum_.defined() && summed_version_ == weight.version()) return weight_sum_;
  weight_sum_ = Tensor::empty({weight.size(0)}, DType::int32);
  summed_version_ = weight.version();
  const auto* row = weight.data<std::int8_t>();
  for (std::int64_t i = 0; i < weight.size(0); ++i, row += weight.size(1))
    weight_sum_.data<std::int32_t>()[i] = std::accumulate(row, row + weight.size(1), std::int32_t{0});
  return weight_sum_;
}

}  // namespace ddprun::nn
