#pragma once

#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Returns the share of time in which stages of equal cost wait; 0 without a pipeline.
double bubble_of(const TrainConfig::Parallel& parallel);

}  // namespace ddprun::trainer
