#pragma once

#include "worker/autograd/checkpoint.h"

namespace ddprun::nn {

// Sets the factor by which the gradient of the loss of forward passes on this thread is multiplied: a loss scale, the
// share of a micro-batch. Modules that add the gradients of losses of their own multiply them by it, and count nothing
// of a pass with the factor 0, which a process without samples makes for others. Outside of any scope it is 1.
// Functions that autograd::checkpoint() computes again have the same factor.
class LossFactorScope final : public autograd::ContextScope {
 public:
  explicit LossFactorScope(double factor);
  ~LossFactorScope();

  static double current();

 private:
  Maker maker() const override;

  const double before_;
};

}  // namespace ddprun::nn
