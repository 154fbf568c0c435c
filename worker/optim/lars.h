#pragma once

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

// You et al., "Large batch training of convolutional networks" (2017), algorithm 1. With g the gradient, p the
// parameter, and the Euclidean norms of the whole tensor: rate = lr trust_coefficient |p| / (|g| + weight_decay |p|),
// v = momentum v + rate (g + weight_decay p), p -= v; where a norm is 0, rate is lr. State: momentum_buffer (v).
class Lars : public Optimizer {
 public:
  Lars(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> momentum_;
  std::vector<double> square_sums_;  // by parameter of a group, of itself and of its gradient; used within an update
};

}  // namespace ddprun::optim
