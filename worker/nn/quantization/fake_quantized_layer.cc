#include "worker/nn/quantization/fake_quantized_layer.h"

#include <vector>

#include "worker/autograd/checkpoint.h"
#include "worker/autograd/ops/quantization.h"

namespace ddprun::nn {
namespace {

constexpr float momentum = 0.01F;

}  // namespace

FakeQuantizedLayer::FakeQuantizedLayer(const WeightedLayer& layer) : layer_(layer) {
  register_parameter("weight", layer.weight());
  if (layer.bias().defined()) register_parameter("bias", layer.bias());
  range_ = register_buffer("input_range", Tensor::zeros({2}));
}

kernels::ValueRange FakeQuantizedLayer::range() const {
  const Tensor range = range_.value().to(Device{});
  const auto* bounds = range.data<float>();
  return {.min = bounds[0], .max = bounds[1]};
}

Variable FakeQuantizedLayer::forward(const Variable& input) {
  if (training() && !autograd::is_recomputing()) follow(input.value());
  const auto levels = kernels::levels_of(range());
  const Variable x = fake_quantize(
      input, {.scale = levels.scale, .zero = levels.zero, .lowest = 0, .highest = kernels::Levels::highest});
  return layer_.apply(x, fake_quantize_channels(layer_.weight(), layer_.output_dimension()), layer_.bias());
}

void FakeQuantizedLayer::follow(const Tensor& input) {
  const Tensor x = input.to(DType::float32).contiguous();
  const auto [min, max] = kernels::of(x).value_range(x);
  const auto before = range();
  // A range from 0 to 0 means that there was no batch yet.
  const float share = before.min == before.max ? 1 : momentum;
  const std::vector<float> bounds{before.min + share * (min - before.min), before.max + share * (max - before.max)};
  Tensor(range_.value()).copy_from(Tensor::from(bounds, {2}));
}

}  // namespace ddprun::nn
