#pragma once

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

// You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (ICLR 2020), algorithm 2. With
// g the gradient, p the parameter, t the step, m and v Adam's means: r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) +
// eps) + weight_decay p, p -= lr |p| / |r| r, with the Euclidean norms of the whole tensor; where one of them is 0,
// their ratio counts as 1. State: exp_avg (m) and exp_avg_sq (v) of each parameter, and the step count.
class Lamb : public Optimizer {
 public:
  Lamb(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> average_, square_average_;
  std::vector<double> square_sums_;  // by parameter of a group, of itself and of its update; used within an update
};

}  // namespace ddprun::optim
