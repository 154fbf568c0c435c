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

}  // namespace ddprun::nn
