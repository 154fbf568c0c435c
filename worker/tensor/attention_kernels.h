#pragma once

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

struct AttentionResult {
  Tensor out;
  Tensor log_sum;  // (batch, heads, queries): that of the sum of the scores' exponentials, float32 or float64
};
// The sums that attention_backward() needs of the forward pass, and of all keys where it sees some of them.
struct AttentionSums {
  Tensor log_sum;
  // The result times its gradient, summed over the width: like log_sum. It is undefined if these are all keys.
  Tensor grad_dot_out = {};
};
struct AttentionGradients {
  Tensor query, key, value;
  bool accumulate = false;  // true if they are added to what is there
};

// Scaled-dot-product attention of the table (kernels.h).
struct AttentionKernels {
  // query (batch, heads, queries, width), key and value (batch, heads, keys, width), and result and gradients of the
  // same shapes, all strided but for the last dimension; mask undefined, or (queries, keys), contiguous, added to the
  // scores.
  Entry<void(In query, In key, In value, In mask, const AttentionOptions&, const AttentionResult& out)> attention{
      "attention"};
  Entry<void(In query, In key, In value, In mask, const AttentionSums&, In grad, const AttentionOptions&,
             const AttentionGradients& out)>
      attention_backward{"attention_backward"};
  // Merges the result of some keys and that of others into that of all of them. They are float32 or float64.
  Entry<void(const AttentionResult& part, const AttentionResult& all)> merge_attention{"merge_attention"};
};

}  // namespace ddprun::kernels
