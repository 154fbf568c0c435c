#include "worker/optim/makers.h"
#include "worker/tensor/kernels.h"

namespace ddprun::optim {
namespace {

// With g the gradient plus weight_decay times the parameter p: v = momentum v + (1 - dampening) g, in a parameter's
// first step v = g, then p -= lr v. Nesterov's variant: p -= lr (g + momentum v). Without momentum, p -= lr g and no
// state. PyTorch's SGD (Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML
// 2013, with the learning rate outside of v).
//
// State: momentum_buffer of each parameter, and with dampening momentum_started, which is 1 after its first step
// (without dampening the first step is like all others, since v is zero before).
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  bool can_skip() const override { return true; }
  void update(const GroupStep& group) override;

  std::vector<Tensor> momentum_, started_;
};

}  // namespace

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
  const auto* started = started_.empty() ? nullptr : &started_;
  for_lists(group, momentum, started, [&](const Lists& lists) {
    step.skip = skip(lists.values[0].device());
    kernels::of(lists.values[0]).sgd_step(lists.values, lists.gradients, lists.first_state, lists.second_state, step);
  });
}

std::unique_ptr<Optimizer> make_sgd(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<Sgd>(std::move(groups), options);
}

}  // namespace ddprun::optim
