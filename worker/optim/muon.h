#pragma once

#include "worker/optim/optimizer.h"

namespace ddprun::optim {

// Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), as PyTorch's Muon. For a parameter p
// of two dimensions with the gradient g: v = momentum v + (1 - momentum) g, u = v, or with nesterov (1 - momentum) g +
// momentum v; u is made nearly orthogonal by ns_steps steps of a Newton-Schulz iteration; p *= 1 - lr weight_decay,
// p -= lr' u, where lr' is lr times sqrt(max(1, rows / columns)) (adjust_lr_fn "original") or 0.2 sqrt(max(rows,
// columns)) ("match_rms_adamw"). The iteration is taken in the dtype of the parameter, PyTorch's in bfloat16.
// A parameter of three dimensions is as many matrices, such as the weights of experts. Biases and parameters of other
// dimensions get AdamW's step, with the same lr and weight_decay.
// State: momentum_buffer (v) of matrices, exp_avg and exp_avg_sq of other parameters, and the step count.
class Muon : public Optimizer {
 public:
  Muon(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;
  Tensor follow_momentum(const Tensor& gradient, Tensor& momentum) const;
  bool is_of_matrices(std::size_t index) const;
  void orthogonalise(Tensor& direction) const;
  void subtract(std::size_t index, Tensor& value, const Tensor& direction, const GroupStep& group) const;
  void update_matrices_of_parts(const GroupStep& group);

  std::vector<Tensor> momentum_, average_, square_average_;  // undefined for a parameter that has none
};

}  // namespace ddprun::optim
