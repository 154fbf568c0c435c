#pragma once

#include <optional>

#include "worker/autograd/variable.h"

namespace ddprun {

struct AttentionOptions {
  bool causal = false;          // query i sees the keys up to i, counted from the last of both
  std::optional<double> scale;  // the scale of the scores; 1 / sqrt(width) where none is given
};

// Scaled-dot-product attention (Vaswani et al. 2017): softmax(query key^T scale + mask) value. query
// (..., queries, width), key (..., keys, width), value (..., keys, value width), with equal leading dimensions, usually
// (batch, heads); the result is (..., queries, value width). mask: undefined, or (queries, keys), added to the scores;
// minus infinity hides a key. A query that sees no key gives zeros.
Variable attention(const Variable& query, const Variable& key, const Variable& value,
                   const AttentionOptions& options = {}, const Tensor& mask = {});

// Self-attention of heads that lie side by side, without copies of its operands: packed is (batch, time, 3 width), the
// query, key and value of each position one after the other, each of `heads` heads of width / heads; the result is
// (batch, time, width).
Variable packed_attention(const Variable& packed, std::int64_t heads, const AttentionOptions& options = {},
                          const Tensor& mask = {});

}  // namespace ddprun
