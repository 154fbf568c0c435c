#include "worker/optim/sgd.h"

#include "worker/tensor/kernels.h"

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
  const auto* momentum = momentum_.empty() ? nullptr : &momentum_;
  const auto is_first = [this](std::size_t index) { return take_first(index); };
  for_lists(group, momentum, nullptr, is_first, [&](const Lists& lists, bool first) {
    step.first = first;
    kernels::of(lists.values[0]).sgd_step(lists.values, lists.gradients, lists.first_state, step);
  });
}

bool Sgd::take_first(std::size_t index) {
  if (started_.empty()) return false;
  return std::exchange(*started_[index].data<std::int64_t>(), 1) == 0;
}

}  // namespace ddprun::optim
