#pragma once

#include <cstdint>

#include "ddprun/worker/nn/layers/dropout.h"
#include "ddprun/worker/nn/layers/linear.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/random.h"

namespace ddprun::nn {

// packed_attention() whose weights, the probabilities, are dropped by weights_dropout.
Variable attention_with_dropout(const Variable& packed, std::int64_t heads, bool causal, Dropout& weights_dropout);

// (batch, time, width) -> the same: each position sees all. PyTorch's MultiheadAttention of one input with itself, with
// its names, order and initial distributions of parameters. dropout: of the attention's weights.
// REQUIRES: a width that is a multiple of heads.
class SelfAttention : public Module {
 public:
  SelfAttention(std::int64_t width, std::int64_t heads, double dropout, Generator& generator);

 private:
  Variable forward(const Variable& input) override;

  std::int64_t heads_;
  bool drops_weights_;
  Variable in_proj_weight_, in_proj_bias_;
  Linear& out_proj_;
  Dropout& dropout_;
};

}  // namespace ddprun::nn
