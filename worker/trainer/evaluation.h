#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "ddprun/worker/autograd/variable.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/data/loader.h"
#include "ddprun/worker/nn/module.h"

namespace ddprun::trainer {

// Mean over the batch: cross-entropy for labels, mean squared error for numbers.
Variable loss_of(const Variable& output, const data::Batch& batch, const data::SampleLayout& layout);

struct Evaluation {
  double loss = 0;                 // mean over all samples
  std::optional<double> accuracy;  // 0 .. 1; none without classes
};

struct EvaluationOptions {
  std::int64_t batch_size = 1000;  // per rank
  int workers = 1;
};

// "nan" is printed for the result, never "-nan"; other values stay as they are.
inline double without_nan_sign(double value) {
  return std::isnan(value) ? std::fabs(value) : value;
}

// The model on a whole dataset, spread over the ranks, every sample counted exactly once; the same result at every
// rank. The model is in evaluation mode meanwhile. Collective.
Evaluation evaluate(nn::Module& model, const data::Dataset& dataset, ProcessGroup& group, EvaluationOptions options);

}  // namespace ddprun::trainer
