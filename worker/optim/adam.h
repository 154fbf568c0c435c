#pragma once

#include "ddprun/worker/optim/optimizer.h"

namespace ddprun::optim {

// Kingma and Ba, "Adam: a method for stochastic optimization" (ICLR 2015), with PyTorch's details: weight decay is
// added to the gradient, eps to the bias-corrected root. State: exp_avg and exp_avg_sq of each parameter, and the step
// count.
class Adam : public Optimizer {
 public:
  Adam(NamedParameters parameters, const OptimOptions& options);

 private:
  void update(std::size_t index, Tensor& value, const Tensor& gradient) override;

  std::vector<Tensor> average_, square_average_;
};

}  // namespace ddprun::optim
