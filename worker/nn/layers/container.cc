#include "ddprun/worker/nn/layers/container.h"

#include "ddprun/worker/autograd/ops/shape.h"

namespace ddprun::nn {

Variable Flatten::forward(const Variable& input) {
  return flatten(input);
}

Sequential& Sequential::add(const std::string& name, std::unique_ptr<Module> module) {
  order_.push_back({name, &register_module(name, std::move(module))});
  return *this;
}

Variable Sequential::forward(const Variable& input) {
  Variable value = input;
  for (const auto& [name, module] : order_) value = (*module)(value);
  return value;
}

void Sequential::replace(const std::function<std::unique_ptr<Module>(Module&)>& replacement) {
  for (auto& [name, module] : order_) {
    if (auto* const sequence = dynamic_cast<Sequential*>(module)) sequence->replace(replacement);
    auto other = replacement(*module);
    if (!other) continue;
    module = other.get();
    exchange_module(name, std::move(other));
  }
}

}  // namespace ddprun::nn
