#pragma once

#include "ddprun/worker/optim/optimizer.h"

namespace ddprun::optim {

// With g the gradient plus weight_decay times the parameter p: v = momentum v + g (v starts as g), p -= lr v.
// Without momentum, p -= lr g and no state. PyTorch's SGD (without dampening and Nesterov's variant).
class Sgd : public Optimizer {
 public:
  Sgd(NamedParameters parameters, const OptimOptions& options);

 private:
  void update(std::size_t index, Tensor& value, const Tensor& gradient) override;

  std::vector<Tensor> momentum_;
};

}  // namespace ddprun::optim
