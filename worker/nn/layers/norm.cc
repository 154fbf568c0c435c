#include "worker/nn/layers/norm.h"

#include "worker/autograd/checkpoint.h"

namespace ddprun::nn {

BatchNorm::BatchNorm(std::int64_t channels, NormOptions options)
    : options_(options),
      weight_(register_parameter("weight", Tensor::full({channels}, 1))),
      bias_(register_parameter("bias", Tensor::zeros({channels}))),
      running_mean_(register_buffer("running_mean", Tensor::zeros({channels}))),
      running_var_(register_buffer("running_var", Tensor::full({channels}, 1))),
      batches_(register_buffer("num_batches_tracked", Tensor::zeros({}, DType::int64))) {}

Variable BatchNorm::forward(const Variable& input) {
  if (training() && !autograd::is_recomputing()) count_batch();
  return batch_norm(
      input, weight_, bias_, running_mean_.value(), running_var_.value(),
      {.training = training(), .momentum = options_.momentum, .eps = options_.eps, .sum_over_ranks = sum_over_ranks_});
}

void BatchNorm::count_batch() {
  Tensor count = batches_.value();
  if (count.device().type == DeviceType::cpu) {
    ++*count.data<std::int64_t>();
    return;
  }
  // The host waits for the device once, not at each batch.
  if (counted_.storage() != count.storage() || counted_version_ != count.version())
    known_count_ = count.to(Device{}).data<std::int64_t>()[0];
  count.fill(static_cast<double>(++known_count_));
  counted_ = count;
  counted_version_ = count.version();
}

LayerNorm::LayerNorm(std::int64_t width, double eps, bool bias)
    : eps_(eps), weight_(register_parameter("weight", Tensor::full({width}, 1))) {
  if (bias) bias_ = register_parameter("bias", Tensor::zeros({width}));
}

Variable LayerNorm::forward(const Variable& input) {
  return layer_norm(input, weight_, bias_, eps_, lowers_results_ && input.device().type == DeviceType::cuda);
}

RmsNorm::RmsNorm(std::int64_t width, double eps)
    : eps_(eps), weight_(register_parameter("weight", Tensor::full({width}, 1))) {}

Variable RmsNorm::forward(const Variable& input) {
  return rms_norm(input, weight_, eps_);
}

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, double eps)
    : groups_(groups),
      eps_(eps),
      weight_(register_parameter("weight", Tensor::full({channels}, 1))),
      bias_(register_parameter("bias", Tensor::zeros({channels}))) {}

Variable GroupNorm::forward(const Variable& input) {
  return group_norm(input, groups_, weight_, bias_, eps_);
}

}  // namespace ddprun::nn
