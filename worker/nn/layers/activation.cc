#include "worker/nn/layers/activation.h"

#include "worker/autograd/ops/activation.h"
#include "worker/autograd/ops/reduce.h"

namespace ddprun::nn {

Variable ReLU::forward(const Variable& input) {
  return relu(input);
}

Variable GELU::forward(const Variable& input) {
  return approximation_ == Approximation::tanh ? gelu_tanh(input) : gelu(input);
}

Variable Tanh::forward(const Variable& input) {
  return tanh(input);
}

Variable Sigmoid::forward(const Variable& input) {
  return sigmoid(input);
}

Variable LogSoftmax::forward(const Variable& input) {
  return log_softmax(input);
}

}  // namespace ddprun::nn
