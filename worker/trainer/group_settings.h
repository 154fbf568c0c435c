#pragma once

#include "ddprun/worker/comm/init.h"
#include "ddprun/worker/trainer/train_config.h"

namespace ddprun::trainer {

// The process group of a job, as its [dist] settings describe it.
InitOptions init_options(const TrainConfig::Dist& dist, const WorkerEnv& place);

}  // namespace ddprun::trainer
