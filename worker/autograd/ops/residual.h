#pragma once

#include "worker/autograd/variable.h"

// Parts of residual blocks that end in a product, to which the product's kernel adds the residual stream. The result
// has the residual's shape and type: under autocast the products are of 16 bits, their sums and the residual's are not
// rounded in between.
namespace ddprun {

// residual + a b + bias: residual (..., n), a (..., k), b (k, n), bias (n) or undefined.
Variable residual_addmm(const Variable& residual, const Variable& bias, const Variable& a, const Variable& b);

// The two layers of a transformer's part that sees each position by itself, with weights (in, out).
struct MlpWeights {
  Variable first, first_bias;    // (width, hidden), (hidden) or undefined
  Variable second, second_bias;  // (hidden, width), (width) or undefined
};
// residual + gelu_tanh(input first + first_bias) second + second_bias
Variable residual_mlp(const Variable& residual, const Variable& input, const MlpWeights& weights);

}  // namespace ddprun
