#include "ddprun/worker/optim/adam.h"

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::optim {

Adam::Adam(NamedParameters parameters, const OptimOptions& options)
    : Optimizer(std::move(parameters), options),
      average_(add_state("exp_avg")),
      square_average_(add_state("exp_avg_sq")) {}

void Adam::update(std::size_t index, Tensor& value, const Tensor& gradient) {
  kernels::of(value).adam_step(value, gradient, average_[index], square_average_[index],
                               {.lr = lr(),
                                .beta1 = options().beta1,
                                .beta2 = options().beta2,
                                .eps = options().eps,
                                .weight_decay = options().weight_decay,
                                .step = step_count()});
}

}  // namespace ddprun::optim
