#pragma once

#include <cstddef>

#include "worker/nn/module.h"

namespace ddprun::nn {

// A layer whose result is linear in its input and in its weight: a product or a convolution, with or without a bias.
// Quantization replaces such layers.
class WeightedLayer : public Module {
 public:
  const Variable& weight() const { return weight_; }
  const Variable& bias() const { return bias_; }  // undefined if there is none
  // The dimension of the weight that counts the outputs.
  virtual std::size_t output_dimension() const { return 0; }
  // Applies the layer with another weight and bias.
  virtual Variable apply(const Variable& input, const Variable& weight, const Variable& bias) const = 0;

 protected:
  // These two are called in the order of registration.
  void set_weight(Tensor value) { weight_ = register_parameter("weight", std::move(value)); }
  void set_bias(Tensor value) { bias_ = register_parameter("bias", std::move(value)); }
  // Registers another layer's weight and bias as this one's.
  void share_parameters(const WeightedLayer& other) {
    weight_ = register_parameter("weight", other.weight());
    if (other.bias().defined()) bias_ = register_parameter("bias", other.bias());
  }

 private:
  Variable forward(const Variable& input) override { return apply(input, weight_, bias_); }

  Variable weight_, bias_;
};

}  // namespace ddprun::nn
