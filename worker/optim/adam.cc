#include "worker/optim/makers.h"
#include "worker/tensor/kernels.h"

namespace ddprun::optim {
namespace {

// Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015), with PyTorch's details: weight decay is
// added to the gradient, eps to the bias-corrected root. With g that gradient, p the parameter and t the step:
// m = beta1 m + (1 - beta1) g, v = beta2 v + (1 - beta2) g^2,
// p -= lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps).
// State: exp_avg (m) and exp_avg_sq (v) of each parameter, and the step count.
class Adam : public Optimizer {
 public:
  Adam(std::vector<ParameterGroup> groups, const OptimOptions& options) : Adam(std::move(groups), options, false) {}

 protected:
  Adam(std::vector<ParameterGroup> groups, const OptimOptions& options, bool decoupled);

 private:
  bool can_skip() const override { return true; }
  void update(const GroupStep& group) override;

  std::vector<Tensor> average_, square_average_;
  const bool decoupled_;  // that of the weight decay
};

// Loshchilov and Hutter, "Decoupled weight decay regularization" (ICLR 2019), as PyTorch's AdamW: p *= 1 - lr
// weight_decay, then Adam's step by the gradient without decay. The same state as Adam's.
class AdamW : public Adam {
 public:
  AdamW(std::vector<ParameterGroup> groups, const OptimOptions& options) : Adam(std::move(groups), options, true) {}
};

}  // namespace

Adam::Adam(std::vector<ParameterGroup> groups, const OptimOptions& options, bool decoupled)
    : Optimizer(std::move(groups), options),
      average_(add_state("exp_avg")),
      square_average_(add_state("exp_avg_sq")),
      decoupled_(decoupled) {}

void Adam::update(const GroupStep& group) {
  kernels::AdamStep step{.lr = group.lr,
                         .beta1 = options().beta1,
                         .beta2 = options().beta2,
                         .eps = options().eps,
                         .weight_decay = group.weight_decay,
                         .step = step_count(),
                         .freeze_step = options().freeze_step,
                         .decoupled = decoupled_};
  for_lists(group, &average_, &square_average_, [&](const Lists& lists) {
    step.skip = skip(lists.values[0].device());
    step.left_out = left_out(lists.values[0].device());
    kernels::of(lists.values[0]).adam_step(lists.values, lists.gradients, lists.first_state, lists.second_state, step);
  });
}

std::unique_ptr<Optimizer> make_adam(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<Adam>(std::move(groups), options);
}

std::unique_ptr<Optimizer> make_adamw(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<AdamW>(std::move(groups), options);
}

}  // namespace ddprun::optim
