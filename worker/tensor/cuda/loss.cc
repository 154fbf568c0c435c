#include "ddprun/worker/tensor/cuda/table.h"

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

}  // namespace

void add_losses(const DeviceApi& api, kernels::Table& table) {
  offer(table.nll_loss, nll_loss, api.nll_loss);
  offer(table.nll_loss_backward, nll_loss_backward, api.nll_loss_backward);
  offer(table.cross_entropy_backward, cross_entropy_backward, api.cross_entropy_backward);
}

}  // namespace ddprun::cuda
