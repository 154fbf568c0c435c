#pragma once

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

// Duchi et al., "Adaptive subgradient methods for online learning and stochastic optimization" (JMLR 2011), as
// PyTorch's Adagrad. With g the gradient plus weight_decay times the parameter p and t the step: s += g^2,
// p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). State: sum (s) of each parameter, and the step count.
class Adagrad : public Optimizer {
 public:
  Adagrad(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> sum_;
};

}  // namespace ddprun::optim
