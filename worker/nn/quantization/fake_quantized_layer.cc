#include "worker/nn/quantization/fake_quantized_layer.h"

#include <vector>

#include "worker/autograd/checkpoint.h"

namespace ddprun::nn {
namespace {

constexpr float momentum = 0.01F;

}  // namespace

FakeQuantizedLayer::FakeQuantizedLayer(const WeightedLayer& layer) : layer_(layer) {
  share_parameters(layer);
  range_ = register_buffer("input_range", Tensor::zeros({2}));
}

kernels::ValueRange FakeQuantizedLayer::range() const {
  const Tensor range = range_.value().to(Device{});
  const auto* bounds = range.data<float>();
  return {.min = bounds[0], .max = bounds[1]};
}

Variable FakeQuantizedLayer::apply(const Variable& input, const Variable& weight, const Variable& bias) const {
  if (training() && !autograd::is_recomputing()) follow(input.value());
  const auto levels = kernels::levels_of(range());
  const Variable x = fake_quantize(
      input, {.scale = levels.scale, .zero = levels.zero, .lowest = 0, .highest = kernels::Levels::highest});
  return layer_.apply(x, fake_quantize_channels(weight, output_dimension(), share_maxima_), bias);
}

kernels::ValueRange FakeQuantizedLayer::range_of(const Tensor& input) const {
  const Tensor x = input.to(DType::float32).contiguous();
  const auto own = kernels::of(x).value_range(x);
  if (!share_maxima_) return own;
  std::vector<double> maxima{-static_cast<double>(own.min), static_cast<double>(own.max)};
  share_maxima_(maxima);
  return {.min = static_cast<float>(-maxima[0]), .max = static_cast<float>(maxima[1])};
}

void FakeQuantizedLayer::follow(const Tensor& input) const {
  const auto [min, max] = range_of(input);
  const auto before = range();
  // A range from 0 to 0 means that there was no batch yet.
  const float share = before.min == before.max ? 1 : momentum;
  const std::vector<float> bounds{before.min + share * (min - before.min), before.max + share * (max - before.max)};
  Tensor(range_.value()).copy_from(Tensor::from(bounds, {2}));
}

}  // namespace ddprun::nn
