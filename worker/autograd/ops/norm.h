#pragma once

#include <functional>
#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun {

// Replaces values by their sum over the processes that share a batch, in the same order of calls at each.
using SumOverRanks = std::function<void(std::vector<double>& values)>;

struct BatchNormOptions {
  bool training = true;   // normalize by the batch's statistics and update the running ones; else by the running ones
  double momentum = 0.1;  // running = (1 - momentum) running + momentum batch
  double eps = 1e-5;
  // The batch's statistics are those of all ranks' samples together, in both passes. If empty: only of this rank's.
  SumOverRanks sum_over_ranks = {};
};

// input (batch, channels) or (batch, channels, ...); weight, bias, running_mean, running_var: (channels). The running
// variance is the unbiased one, as in PyTorch. Training needs more than one value a channel: Errc::usage.
Variable batch_norm(const Variable& input, const Variable& weight, const Variable& bias, Tensor running_mean,
                    Tensor running_var, const BatchNormOptions& options);

// Normalizes the last dimension; weight and bias have its size, or are undefined (Ba, Kiros and Hinton 2016). If lower,
// the result has the 16-bit type under autocast, for users that would cast it: one pass over memory less.
Variable layer_norm(const Variable& input, const Variable& weight = {}, const Variable& bias = {}, double eps = 1e-5,
                    bool lower = false);
// Like layer_norm(), without subtracting the mean (Zhang and Sennrich 2019).
Variable rms_norm(const Variable& input, const Variable& weight = {}, double eps = 1e-6);
// input (batch, channels, ...): normalizes groups of channels of each sample together (Wu and He 2018). weight and
// bias: (channels), or undefined.
Variable group_norm(const Variable& input, std::int64_t groups, const Variable& weight = {}, const Variable& bias = {},
                    double eps = 1e-5);

}  // namespace ddprun
