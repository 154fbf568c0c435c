#include "worker/tensor/cuda/table.h"

namespace ddprun::cuda {
namespace {

using kernels::CrossEntropyOptions;

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, const CrossEntropyOptions& options) {
  const CudaDevice& on = device_of(log_probabilities);
  Tensor loss = Tensor::empty({}, log_probabilities.dtype(), log_probabilities.device());
  check(on.api().nll_loss(on.context(), view_of(log_probabilities), view_of(targets), options, view_of(loss)));
  return loss;
}

Tensor nll_loss_backward(const Tensor& log_probabilities, const Tensor& targets, const CrossEntropyOptions& options,
                         double factor) {
  const CudaDevice& on = device_of(log_probabilities);
  Tensor out = Tensor::empty_like(log_probabilities);
  check(on.api().nll_loss_backward(on.context(), view_of(log_probabilities), view_of(targets), options, factor,
                                   view_of(out)));
  return out;
}

Tensor cross_entropy_backward(const Tensor& log_probabilities, const Tensor& targets,
                              const CrossEntropyOptions& options, double factor) {
  const CudaDevice& on = device_of(log_probabilities);
  Tensor out = Tensor::empty_like(log_probabilities);
  check(on.api().cross_entropy_backward(on.context(), view_of(log_probabilities), view_of(targets), options, factor,
                                        view_of(out)));
  return out;
}

kernels::LinearLoss linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& targets,
                                         const kernels::LinearLossOptions& options, DType dtype, bool gradients) {
  const CudaDevice& on = device_of(input);
  const DType wide = input.dtype() == DType::float64 ? DType::float64 : DType::float32;
  kernels::LinearLoss result{.loss = Tensor::empty({}, dtype, input.device()),
                             .share = Tensor::empty({}, wide, input.device()),
                             .input = {},
                             .weight = {}};
  if (gradients) {
    result.input = Tensor::empty(input.shape(), wide, input.device());
    result.weight = Tensor::empty(weight.shape(), wide, input.device());
  }
  check(on.api().linear_cross_entropy(on.context(), view_of(input), view_of(weight), view_of(targets), options,
                                      view_of(result.loss), view_of(result.share), view_of(result.input),
                                      view_of(result.weight)));
  return result;
}

void scale_by(const Tensor& x, const Tensor& a, const Tensor& b, Tensor& out, bool accumulate) {
  const CudaDevice& on = device_of(x);
  check(on.api().scale_by(on.context(), view_of(x), view_of(a), view_of(b), view_of(out), accumulate));
}

}  // namespace

void add_losses(const DeviceApi& api, kernels::Table& table) {
  offer(table.nll_loss, nll_loss, api.nll_loss);
  offer(table.nll_loss_backward, nll_loss_backward, api.nll_loss_backward);
  offer(table.cross_entropy_backward, cross_entropy_backward, api.cross_entropy_backward);
  offer(table.linear_cross_entropy, linear_cross_entropy, api.linear_cross_entropy);
  offer(table.scale_by, scale_by, api.scale_by);
}

}  // namespace ddprun::cuda
