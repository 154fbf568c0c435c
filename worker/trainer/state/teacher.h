#pragma once

#include "worker/data/dataset.h"
#include "worker/tasks/tasks.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Makes what [distill] describes: the teacher with its weights, in evaluation mode, and how much it counts; empty if no
// teacher is given. Throws Errc::usage for a model or a file that does not fit, naming the key.
tasks::DistillationOptions make_distillation_options(const TrainConfig& config, const data::SampleLayout& layout);

}  // namespace ddprun::trainer
