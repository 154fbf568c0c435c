#pragma once

#include "ddprun/worker/data/dataset.h"
#include "ddprun/worker/tasks/tasks.h"
#include "ddprun/worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Makes the teacher that [distill] describes, with its weights, in evaluation mode, and its weight; empty if no teacher
// is given. Throws Errc::usage for a model or a file that does not fit, naming the key.
tasks::DistillationOptions make_distillation_options(const TrainConfig& config, const data::SampleLayout& layout);

}  // namespace ddprun::trainer
