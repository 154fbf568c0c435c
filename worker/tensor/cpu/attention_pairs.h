#pragma once

#include "worker/tensor/kernels.h"

// Attention on bfloat16 whose products are those of pairs (panel_product.h), with sums and softmax in float32:
// probabilities and the gradients of scores are rounded to bfloat16 before they are multiplied, as PyTorch's are.
namespace ddprun::cpu {

// Returns whether the processor is quick at it, and rows consist of pairs.
bool attends_in_pairs(const Tensor& query, const Tensor& value);

// These do what the entries of kernels.h do; mask: float32 or undefined.
void attention_in_pairs(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                        const kernels::AttentionOptions& options, const kernels::AttentionResult& result);
void attention_backward_in_pairs(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                 const kernels::AttentionSums& sums, const Tensor& grad,
                                 const kernels::AttentionOptions& options, const kernels::AttentionGradients& out);

}  // namespace ddprun::cpu
