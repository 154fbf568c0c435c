#pragma once

#include "worker/tensor/cuda/device_api.h"

// Scaled-dot-product attention, by tiles of keys: scores never exist whole.
namespace ddprun::cuda {

void attention(DeviceContext& device, const View& query, const View& key, const View& value, const View& mask,
               const kernels::AttentionOptions& options, const View& out, const View& log_sum);
void attention_backward(DeviceContext& device, const View& query, const View& key, const View& value, const View& mask,
                        const View& log_sum, const View& grad_dot_out, const View& grad,
                        const kernels::AttentionOptions& options, const View& query_grad, const View& key_grad,
                        const View& value_grad, bool accumulate);
void merge_attention(DeviceContext& device, const View& part_out, const View& part_log_sum, const View& all_out,
                     const View& all_log_sum);

}  // namespace ddprun::cuda
