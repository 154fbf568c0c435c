#pragma once

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

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
  void update(const GroupStep& group) override;
  // Returns whether this is the first step of a parameter, and notes that it was taken.
  bool take_first(std::size_t index);

  std::vector<Tensor> momentum_, started_;
};

}  // namespace ddprun::optim
