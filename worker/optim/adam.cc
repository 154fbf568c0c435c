#include "ddprun/worker/optim/adam.h"

#include "ddprun/worker/tensor/kernels.h"

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
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
    kernels::of(value).adam_step(value, gradient, average_[index], square_average_[index], step);
  });
}

}  // namespace ddprun::optim
