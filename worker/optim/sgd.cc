#include "ddprun/worker/optim/sgd.h"

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::optim {

Sgd::Sgd(std::vector<ParameterGroup> groups, const OptimOptions& options) : Optimizer(std::move(groups), options) {
  if (options.momentum == 0) return;
  momentum_ = add_state("momentum_buffer");
  if (options.dampening > 0) started_ = add_counters("momentum_started");
}

void Sgd::update(const GroupStep& group) {
  kernels::SgdStep step{.lr = group.lr,
                        .momentum = options().momentum,
                        .weight_decay = group.weight_decay,
                        .dampening = options().dampening,
                        .nesterov = options().nesterov};
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
    Tensor none;
    step.first = take_first(index);
    kernels::of(value).sgd_step(value, gradient, momentum_.empty() ? none : momentum_[index], step);
  });
}

bool Sgd::take_first(std::size_t index) {
  if (started_.empty()) return false;
  return std::exchange(*started_[index].data<std::int64_t>(), 1) == 0;
}

}  // namespace ddprun::optim
