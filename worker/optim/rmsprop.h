#pragma once

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

// Tieleman and Hinton, "RMSprop" (Coursera, 2012), as PyTorch's RMSprop. With g the gradient plus weight_decay times
// the parameter p: s = alpha s + (1 - alpha) g^2, d = sqrt(s) + eps, p -= lr g / d. With momentum: b = momentum b + g /
// d, p -= lr b. Centered (Graves, 2013): a = alpha a + (1 - alpha) g, d = sqrt(s - a^2) + eps. State: square_avg (s),
// and where they are used momentum_buffer (b) and grad_avg (a).
class RmsProp : public Optimizer {
 public:
  RmsProp(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> square_average_, momentum_, average_;
};

}  // namespace ddprun::optim
