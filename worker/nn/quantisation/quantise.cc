#include "ddprun/worker/nn/quantisation/quantise.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "ddprun/worker/autograd/ops/matmul.h"
#include "ddprun/worker/nn/layers/container.h"
#include "ddprun/worker/nn/layers/linear.h"
#include "ddprun/worker/nn/quantisation/quantised_linear.h"

namespace ddprun::nn {
namespace {

// A Linear that notes the range of its inputs.
class ObservedLinear : public Module {
 public:
  explicit ObservedLinear(const Module& linear) {
    for (const auto& [name, parameter] : linear.named_parameters())
      (name == "bias" ? bias_ : weight_) = register_parameter(name, parameter);
  }
  std::optional<kernels::ValueRange> range() const { return range_; }

 private:
  Variable forward(const Variable& input) override {
    const Tensor x = input.value().to(DType::float32).contiguous();
    const auto [min, max] = kernels::of(x).value_range(x);
    range_ = range_ ? kernels::ValueRange{.min = std::min(range_->min, min), .max = std::max(range_->max, max)}
                    : kernels::ValueRange{.min = min, .max = max};
    return linear(input, weight_, bias_);
  }

  Variable weight_, bias_;
  std::optional<kernels::ValueRange> range_;
};

// Makes one of each module of type From. Returns how many there were.
template <class From, class Make>
int replace_each(Module& model, Make make) {
  int count = 0;
  auto* const sequence = dynamic_cast<Sequential*>(&model);
  if (sequence == nullptr) return 0;
  sequence->replace([&](Module& module) -> std::unique_ptr<Module> {
    const auto* const found = dynamic_cast<From*>(&module);
    if (found == nullptr) return nullptr;
    ++count;
    return make(*found);
  });
  return count;
}

}  // namespace

int quantise_dynamic(Module& model) {
  return replace_each<Linear>(
      model, [](const Linear& layer) { return std::make_unique<QuantisedLinear>(layer, std::nullopt); });
}

int quantise_static(Module& model, const std::function<void()>& calibrate) {
  replace_each<Linear>(model, [](const Linear& layer) { return std::make_unique<ObservedLinear>(layer); });
  calibrate();
  // A layer that no sample reached has the range from 0 to 0.
  return replace_each<ObservedLinear>(model, [](const ObservedLinear& layer) {
    return std::make_unique<QuantisedLinear>(layer, layer.range().value_or(kernels::ValueRange{}));
  });
}

}  // namespace ddprun::nn
