#pragma once

#include <map>
#include <string>

#include "ddprun/worker/trainer/config/train_config.h"
#include "ddprun/worker/trainer/state/datasets.h"
#include "ddprun/worker/trainer/trainer.h"

namespace ddprun::trainer {

// "ddprun-worker profile": trains profile.warmup and profile.steps steps of a new model, and some with twice the batch
// where memory allows; prints the profile as a page and writes profile.trace. Leaves no checkpoint and no metrics.
// Collective; what is passed outlives the call. Throws what the parts throw.
void profile_job(const TrainConfig& config, std::map<std::string, std::string> deciding, const Datasets& datasets,
                 const Trainer::Context& context);

}  // namespace ddprun::trainer
