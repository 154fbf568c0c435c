#pragma once

#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// A job whose steps are measured in place of a larger one's.
struct SmallJob {
  TrainConfig config;
  int ranks = 1;          // at most two, or all that parallel.devices needs
  bool is_slice = false;  // true if its ranks divide the model less than those of the larger job
};

// Returns the job with so few ranks, each with a micro-batch of the larger job's size: first without some of the ranks
// that have other samples; then, if more than two have parts of one model or of its samples, with one of those axes and
// two ranks on it.
SmallJob small_job(const TrainConfig& config, int ranks);

}  // namespace ddprun::trainer
