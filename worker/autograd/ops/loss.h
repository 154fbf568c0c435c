#pragma once

#include "worker/autograd/variable.h"

// Losses are scalars: means over the batch, or over all elements. No target has a gradient.
namespace ddprun {

struct CrossEntropyOptions {
  double label_smoothing = 0;        // this share of the target's probability is spread over all classes
  std::int64_t ignore_index = -100;  // rows with this target count for nothing
};

// log_probabilities (batch, classes), targets (batch) int64: the mean of -log_probabilities[i, targets[i]]. A target
// outside of [0, classes) is Errc::usage on the host, and REQUIRED not to be on a CUDA device.
Variable nll_loss(const Variable& log_probabilities, const Tensor& targets, const CrossEntropyOptions& options = {});
// nll_loss(log_softmax(scores), targets), in one pass.
Variable cross_entropy(const Variable& scores, const Tensor& targets, const CrossEntropyOptions& options = {});

// Mean squared error of equal shapes.
Variable mse_loss(const Variable& input, const Tensor& target);
// Quadratic within a distance of beta, linear beyond.
Variable smooth_l1_loss(const Variable& input, const Tensor& target, double beta = 1);
// The first takes probabilities, the second logits.
Variable binary_cross_entropy(const Variable& input, const Tensor& target);
Variable binary_cross_entropy_with_logits(const Variable& input, const Tensor& target);
// input: log-probabilities, target: probabilities; the sum over all elements divided by the size of the first dimension
// (PyTorch's "batchmean").
Variable kl_div(const Variable& input, const Tensor& target);

}  // namespace ddprun
