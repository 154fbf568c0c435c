#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>

#include "worker/comm/process_group.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/nn/module.h"
#include "worker/tasks/task.h"

namespace ddprun::trainer {

using tasks::Evaluation;

struct EvaluationOptions {
  std::int64_t batch_size = 1000;  // per rank
  int workers = 1;
  // If set, that of train.shards: the dataset is evaluated in so many shards, whose sums are added up in their order,
  // so that the result has the same bits with any number of ranks.
  int shards = 0;
  tasks::Forward forward = {};  // if empty, the model's
  // True: forward communicates, so every rank calls it equally often, if need be with a sample that does not count.
  bool equal_passes = false;
  // Adds a batch to the sums, instead of the task and forward; the sums are added up over parts as well: the ranks of a
  // pipeline, of which only the last sees results, or those that divide the positions of a sample.
  std::function<void(std::span<double> sums, const data::Batch& batch)> add_to = {};
  ProcessGroup* parts = nullptr;
  Device device{};  // that of batches
};

// Makes the result print as "nan", never "-nan"; other values stay as they are.
inline double without_nan_sign(double value) {
  return std::isnan(value) ? std::fabs(value) : value;
}

// Evaluates the model on a whole dataset, spread over the ranks, every sample counted exactly once; the result is the
// same at every rank. The model is in evaluation mode meanwhile. Collective.
Evaluation evaluate(nn::Module& model, const tasks::Task& task, const data::Dataset& dataset, ProcessGroup& group,
                    EvaluationOptions options);

}  // namespace ddprun::trainer
