#pragma once

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

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

}  // namespace ddprun::optim
