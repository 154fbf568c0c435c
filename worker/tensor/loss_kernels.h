#pragma once

#include "worker/tensor/geometry.h"
#include "worker/tensor/kernel_entry.h"

namespace ddprun::kernels {

// A mean loss, and the tensors from which its gradients are made.
struct LinearLoss {
  Tensor loss;           // a scalar
  Tensor share;          // a scalar, float32 or float64: 1 / rows that count
  Tensor input, weight;  // the gradients divided by share, float32 or float64; undefined where none were wanted
};

// Losses of the table (kernels.h): scores (rows, classes), targets (rows) int64. A loss is the mean over the rows that
// count.
struct LossKernels {
  Entry<Tensor(In log_probabilities, In targets, const CrossEntropyOptions&)> nll_loss{"nll_loss"};
  Entry<Tensor(In log_probabilities, In targets, const CrossEntropyOptions&, double factor)> nll_loss_backward{
      "nll_loss_backward"};
  // factor * d loss / d scores, given log-probabilities
  Entry<Tensor(In log_probabilities, In targets, const CrossEntropyOptions&, double factor)> cross_entropy_backward{
      "cross_entropy_backward"};
  // The loss of scores = input (rows, width) weight (classes, width) transposed, which exist for some rows at a time.
  // loss: its type.
  Entry<LinearLoss(In input, In weight, In targets, const LinearLossOptions&, DType loss, bool gradients)>
      linear_cross_entropy{"linear_cross_entropy"};
};

}  // namespace ddprun::kernels
