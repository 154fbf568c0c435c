#include "ddprun/worker/optim/sgd.h"

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::optim {

Sgd::Sgd(NamedParameters parameters, const OptimOptions& options) : Optimizer(std::move(parameters), options) {
  if (options.momentum > 0) momentum_ = add_state("momentum_buffer");
}

void Sgd::update(std::size_t index, Tensor& value, const Tensor& gradient) {
  Tensor none;
  kernels::of(value).sgd_step(value, gradient, momentum_.empty() ? none : momentum_[index],
                              {.lr = lr(), .momentum = options().momentum, .weight_decay = options().weight_decay});
}

}  // namespace ddprun::optim
