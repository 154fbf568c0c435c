#include "worker/optim/adam.h"

#include "worker/tensor/kernels.h"

namespace ddprun::optim {

Adam::Adam(std::vector<ParameterGroup> groups, const OptimOptions& options, bool decoupled)
    : Optimizer(std::move(groups), options),
      average_(add_state("exp_avg")),
      square_average_(add_state("exp_avg_sq")),
      decoupled_(decoupled) {}

void Adam::update(const GroupStep& group) {
  const kernels::AdamStep step{.lr = group.lr,
                               .beta1 = options().beta1,
                               .beta2 = options().beta2,
                               .eps = options().eps,
                               .weight_decay = group.weight_decay,
                               .step = step_count(),
                               .freeze_step = options().freeze_step,
                               .decoupled = decoupled_};
  const auto one_key = [](std::size_t) { return false; };
  for_lists(group, &average_, &square_average_, one_key, [&](const Lists& lists, bool) {
    kernels::of(lists.values[0]).adam_step(lists.values, lists.gradients, lists.first_state, lists.second_state, step);
  });
}

}  // namespace ddprun::optim
