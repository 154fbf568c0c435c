#pragma once

#include "ddprun/worker/autograd/variable.h"

namespace ddprun {

// scores (batch, classes) -> the same shape, each row log(softmax(row)).
Variable log_softmax(const Variable& scores);
// log_probabilities (batch, classes), targets (batch) int64 -> scalar: the mean of -log_probabilities[i, targets[i]].
// A target outside of [0, classes) is Errc::usage.
Variable nll_loss(const Variable& log_probabilities, const Tensor& targets);
// nll_loss(log_softmax(scores), targets), in one pass.
Variable cross_entropy(const Variable& scores, const Tensor& targets);
// Equal shapes -> scalar: the mean of the squared differences. No gradient to the target.
Variable mse_loss(const Variable& input, const Tensor& target);

}  // namespace ddprun
