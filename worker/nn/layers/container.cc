#include "worker/nn/layers/container.h"

#include "worker/autograd/ops/shape.h"

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

std::vector<Module::Piece> Sequential::sequence() {
  std::vector<Piece> all;
  for (const auto& [name, module] : order_) all.push_back({name, {module}});
  return all;
}

}  // namespace ddprun::nn
