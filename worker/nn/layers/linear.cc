#include "worker/nn/layers/linear.h"

#include "worker/autograd/ops/indexing.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/residual.h"
#include "worker/autograd/ops/shape.h"
#include "worker/nn/layers/initial.h"

namespace ddprun::nn {

Linear::Linear(std::int64_t in, std::int64_t out, Generator& generator, bool bias) {
  set_weight(uniform_by_fan_in({out, in}, in, generator));
  if (bias) set_bias(uniform_by_fan_in({out}, in, generator));
}

Variable Linear::apply(const Variable& input, const Variable& weight, const Variable& bias) const {
  return linear(input, weight, bias);
}

Conv1D::Conv1D(std::int64_t in, std::int64_t out, double weight_deviation, bool bias, Generator& generator) {
  set_weight(normal({in, out}, weight_deviation, generator));
  if (bias) set_bias(Tensor::zeros({out}));
}

Variable Conv1D::apply(const Variable& input, const Variable& weight, const Variable& bias) const {
  Shape shape = input.shape();
  const Variable rows = reshape(input, {-1, shape.back()});
  shape.back() = weight.shape()[1];
  return reshape(bias.defined() ? addmm(bias, rows, weight) : matmul(rows, weight), shape);
}

std::vector<Variable> Conv1D::forward_all(const std::vector<Variable>& inputs) {
  if (inputs.size() != 2) return WeightedLayer::forward_all(inputs);
  return {residual_addmm(inputs[1], bias(), inputs[0], weight())};
}

Embedding::Embedding(std::int64_t entries, std::int64_t width, Generator& generator, double deviation)
    : weight_(register_parameter("weight", normal({entries, width}, deviation, generator))) {}

Variable Embedding::forward(const Variable& input) {
  return embedding(input.value(), weight_);
}

}  // namespace ddprun::nn
