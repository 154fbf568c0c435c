#pragma once

#include "ddprun/worker/nn/layers/dropout.h"
#include "ddprun/worker/nn/layers/linear.h"

namespace ddprun::nn {

struct CausalSelfAttentionOptions {
  std::int64_t width, heads;  // REQUIRES: width is a multiple of heads
  bool bias = true;
  double dropout = 0;                                // of the probabilities, and of the result
  double deviation = 0.02, result_deviation = 0.02;  // of the initial weights
};

// (batch, time, width) -> the same: each position sees itself and those before. GPT-2's: c_attn makes query, key and
// value, c_proj the result.
class CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(const CausalSelfAttentionOptions& options, Generator& generator);

  std::int64_t heads() const { return heads_; }
  // From now on this module has so many of the heads, whose columns are all that is left of c_attn, and whose rows are
  // all that is left of c_proj.
  void set_heads(std::int64_t heads) { heads_ = heads; }

 private:
  Variable forward(const Variable& input) override;
  Variable attend_with_dropout(const Variable& packed);

  std::int64_t heads_;
  bool drops_weights_;
  Conv1D &c_attn_, &c_proj_;
  Dropout &attn_dropout_, &resid_dropout_;
};

}  // namespace ddprun::nn
