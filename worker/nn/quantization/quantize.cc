#include "worker/nn/quantization/quantize.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "worker/nn/layers/convolution.h"
#include "worker/nn/layers/linear.h"
#include "worker/nn/quantization/fake_quantized_layer.h"
#include "worker/nn/quantization/quantized_conv2d.h"
#include "worker/nn/quantization/quantized_linear.h"

namespace ddprun::nn {
namespace {

using kernels::ValueRange;

// Computes a layer and notes the range of its inputs.
class ObservedLayer : public Module {
 public:
  explicit ObservedLayer(const WeightedLayer& layer) : layer_(layer) {}
  // A layer that no sample reached has the range from 0 to 0.
  ValueRange range() const { return range_.value_or(ValueRange{}); }

 private:
  Variable forward(const Variable& input) override {
    const Tensor x = input.value().to(DType::float32).contiguous();
    const auto [min, max] = kernels::of(x).value_range(x);
    range_ = range_ ? ValueRange{.min = std::min(range_->min, min), .max = std::max(range_->max, max)}
                    : ValueRange{.min = min, .max = max};
    return layer_.apply(input, layer_.weight(), layer_.bias());
  }

  const WeightedLayer& layer_;
  std::optional<ValueRange> range_;
};

// A user's own layer may use its weight in a way that no quantized layer does.
bool has_quantized_form(const WeightedLayer& layer) {
  return dynamic_cast<const Linear*>(&layer) != nullptr || dynamic_cast<const Conv1D*>(&layer) != nullptr ||
         dynamic_cast<const Conv2d*>(&layer) != nullptr;
}

// Returns the layers that can be quantized and are not yet.
std::vector<WeightedLayer*> layers_of(Module& model) {
  std::vector<WeightedLayer*> layers;
  model.for_each_module([&](Module& module) {
    auto* const layer = dynamic_cast<WeightedLayer*>(&module);
    if (layer == nullptr || !has_quantized_form(*layer)) return;
    if (dynamic_cast<QuantizedLayer*>(layer->substitute()) == nullptr) layers.push_back(layer);
  });
  return layers;
}

std::unique_ptr<Module> quantized(const WeightedLayer& layer, std::optional<ValueRange> range) {
  if (const auto* const convolution = dynamic_cast<const Conv2d*>(&layer))
    return std::make_unique<QuantizedConv2d>(layer, convolution->options(), range);
  return std::make_unique<QuantizedLinear>(layer, range);
}

ValueRange noted_range(const WeightedLayer& layer) {
  if (const auto* const trained = dynamic_cast<const FakeQuantizedLayer*>(layer.substitute())) return trained->range();
  return dynamic_cast<const ObservedLayer&>(*layer.substitute()).range();
}

// Frees only what is unused: a parameter may be tied to another module's, which keeps it.
void free_unused(const Module& model, const std::vector<WeightedLayer*>& layers) {
  const auto used = model.named_parameters();
  for (const auto* layer : layers) {
    for (Variable parameter : {layer->weight(), layer->bias()}) {
      if (!parameter.defined()) continue;
      if (std::ranges::any_of(used, [&](const auto& each) { return each.second.is(parameter); })) continue;
      parameter.set_requires_grad(false);
      parameter.set_value(Tensor::empty({0}));
    }
  }
}

}  // namespace

int quantize_dynamic(Module& model) {
  const auto layers = layers_of(model);
  for (auto* layer : layers) layer->set_substitute(quantized(*layer, std::nullopt));
  free_unused(model, layers);
  return static_cast<int>(layers.size());
}

int quantize_static(Module& model, const std::function<void()>& calibrate) {
  const auto layers = layers_of(model);
  bool observes = false;
  for (auto* layer : layers) {
    if (layer->substitute() != nullptr) continue;
    layer->set_substitute(std::make_unique<ObservedLayer>(*layer));
    observes = true;
  }
  if (observes) calibrate();
  for (auto* layer : layers) layer->set_substitute(quantized(*layer, noted_range(*layer)));
  free_unused(model, layers);
  return static_cast<int>(layers.size());
}

int make_quantization_aware(Module& model) {
  const auto layers = layers_of(model);
  for (auto* layer : layers) layer->set_substitute(std::make_unique<FakeQuantizedLayer>(*layer));
  return static_cast<int>(layers.size());
}

}  // namespace ddprun::nn
