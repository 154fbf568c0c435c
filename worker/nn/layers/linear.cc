#include "ddprun/worker/nn/layers/linear.h"

#include "ddprun/worker/autograd/ops/indexing.h"
#include "ddprun/worker/autograd/ops/matmul.h"
#include "ddprun/worker/nn/layers/initial.h"

namespace ddprun::nn {

Linear::Linear(std::int64_t in, std::int64_t out, Generator& generator, bool bias)
    : weight_(register_parameter("weight", uniform_by_fan_in({out, in}, in, generator))) {
  if (bias) bias_ = register_parameter("bias", uniform_by_fan_in({out}, in, generator));
}

Variable Linear::forward(const Variable& input) {
  return linear(input, weight_, bias_);
}

Embedding::Embedding(std::int64_t entries, std::int64_t width, Generator& generator, double deviation)
    : weight_(register_parameter("weight", normal({entries, width}, deviation, generator))) {}

Variable Embedding::forward(const Variable& input) {
  return embedding(input.value(), weight_);
}

}  // namespace ddprun::nn
