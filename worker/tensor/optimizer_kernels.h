#pragma once

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"
#include "worker/tensor/step_rules.h"

namespace ddprun::kernels {

// Operations of the table (kernels.h) of optimizers.
struct OptimizerKernels {
  // Optimizers: one pass over many tensors of one device, in place. The k-th of each list belong together; an empty
  // list means that there is no such state.
  // started, one int64 each: 0 if the momentum starts as the gradient; becomes 1.
  Entry<void(Tensors values, Tensors grads, Tensors momenta, Tensors started, const SgdStep&)> sgd_step{"sgd_step"};
  Entry<void(Tensors values, Tensors grads, Tensors averages, Tensors square_averages, const AdamStep&)> adam_step{
      "adam_step"};
  // The averages of parameters (optim::ExponentialMovingAverage) over one more step.
  Entry<void(Tensors averages, Tensors values, const EmaStep&)> ema_step{"ema_step"};
  // Gradients on a device where the host would have to wait for a result: it stays there. sum: one float64. unscale:
  // not_finite, one float32, becomes 0 where all elements are finite, else 1, and all are divided by scale, one
  // float64. clip_to_norm: does what optim::clip_grads_with_norm() does, with the root of the sum. decide_step: applies
  // the rules to what was found; state, a StepState, becomes that after the step, loss_scale, one float32, that of the
  // next step, and skip, one float32, becomes 1 if this step is to change nothing, else 0.
  Entry<void(Tensors tensors, Tensor& sum)> square_sum{"square_sum"};
  Entry<void(Tensors tensors, double max_norm, In square_sum)> clip_to_norm{"clip_to_norm"};
  Entry<void(Tensors tensors, double max_value)> clip_to_value{"clip_to_value"};
  Entry<void(Tensors tensors, In scale, Tensor& not_finite)> unscale{"unscale"};
  Entry<void(const StepRules&, const StepFindings&, Tensor& state, Tensor& loss_scale, Tensor& skip)> decide_step{
      "decide_step"};
};

}  // namespace ddprun::kernels
