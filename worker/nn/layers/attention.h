#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "worker/nn/layers/dropout.h"
#include "worker/nn/layers/linear.h"

namespace ddprun::nn {

struct CausalSelfAttentionOptions {
  std::int64_t width, heads;  // REQUIRES: width is a multiple of heads
  bool bias = true;
  double dropout = 0;                                // applied to the probabilities, and to the result
  double deviation = 0.02, result_deviation = 0.02;  // those of the initial weights
};

// (batch, time, width) -> the same: each position sees itself and those before. Parts as in GPT-2: c_attn makes query,
// key and value, c_proj the result.
class CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(const CausalSelfAttentionOptions& options, Generator& generator);

  std::int64_t heads() const { return heads_; }
  // From now on this module has so many of the heads: c_attn has been reduced to their columns, and c_proj to their
  // rows.
  void set_heads(std::int64_t heads) { heads_ = heads; }

  // Returns whether the attention's weights are dropped in this pass, and by what.
  bool drops_weights() const { return drops_weights_ && training(); }
  Dropout& weights_dropout() { return attn_dropout_; }
  // Like packed_attention(): (batch, time, 3 width), query, key and value of each position, -> (batch, time, width).
  using Attention = std::function<Variable(const Variable& packed, std::int64_t heads)>;
  // Replaces causal attention over the positions of an input, with its dropout; empty restores it.
  void set_attention(Attention attention) { attention_ = std::move(attention); }

  // Returns whether a second input, the residual stream, may be added to the result by the last product.
  bool adds_residual() const { return is_plain() && c_proj_.is_plain() && resid_dropout_.is_identity(); }

 private:
  Variable forward(const Variable& input) override;
  std::vector<Variable> forward_all(const std::vector<Variable>& inputs) override;
  Variable attend(const Variable& packed);

  std::int64_t heads_;
  bool drops_weights_;
  Attention attention_;
  Conv1D &c_attn_, &c_proj_;
  Dropout &attn_dropout_, &resid_dropout_;
};

// Attention whose weights are computed, so that some can be dropped: query (batch, queries, width), key and value
// (batch, keys, width) -> (batch, queries, width). mask (queries, keys) is added to the scores; undefined: none.
Variable attention_with_dropout(const Variable& query, const Variable& key, const Variable& value, std::int64_t heads,
                                const Tensor& mask, Dropout& weights_dropout);
// Returns the mask that hides from queries at these positions the keys that are later: minus infinity, elsewhere 0.
Tensor causal_mask(const std::vector<std::int64_t>& positions, std::int64_t keys);

// (batch, time, width) -> the same: each position sees all. PyTorch's MultiheadAttention of one input with itself, with
// its names, order and initial distributions of parameters. dropout: that of the attention's weights.
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
