#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionOptions;
using kernels::AttentionResult;
using kernels::AttentionSums;

void attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
               const AttentionOptions& options, const AttentionResult& out) {
  const CudaDevice& on = device_of(query);
  check(on.api().attention(on.context(), view_of(query), view_of(key), view_of(value), view_of(mask), options,
                           view_of(out.out), view_of(out.log_sum)));
}

void attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                        const AttentionSums& sums, const Tensor& grad, const AttentionOptions& options,
                        const AttentionGradients& out) {
  const CudaDevice& on = device_of(query);
  check(on.api().attention_backward(on.context(), view_of(query), view_of(key), view_of(value), view_of(mask),
                                    view_of(sums.log_sum), view_of(sums.grad_dot_out), view_of(grad), options,
                                    view_of(out.query), view_of(out.key), view_of(out.value), out.accumulate));
}

void merge_attention(const AttentionResult& part, const AttentionResult& all) {
  const CudaDevice& on = device_of(part.out);
  check(on.api().merge_attention(on.context(), view_of(part.out), view_of(part.log_sum), view_of(all.out),
                                 view_of(all.log_sum)));
}

}  // namespace

void add_attention(const DeviceApi& api, kernels::Table& table) {
  offer(table.attention, attention, api.attention);
  offer(table.attention_backward, attention_backward, api.attention_backward);
  offer(table.merge_attention, merge_attention, api.merge_attention);
}

}  // namespace ddprun::cuda
