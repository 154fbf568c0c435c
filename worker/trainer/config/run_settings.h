#pragma once

#include <chrono>
#include <cstdint>

#include "worker/data/epoch_plan.h"
#include "worker/optim/lr_schedule.h"
#include "worker/trainer/config/train_config.h"

// Derives a run's data order, its batches, its learning rate and its checkpoints from the settings. Pure functions.
namespace ddprun::trainer {

// Returns the plan for a data set of so many samples, and so many ranks that share each step. Throws Errc::usage if
// that leaves nothing to train.
data::EpochPlan epoch_plan(const TrainConfig& config, std::int64_t size, int ranks);

// Returns the most samples of a rank's micro-batch, with so many ranks that share each step.
std::int64_t micro_batch_size(const TrainConfig& config, int ranks);

// Returns whether the state is copied for checkpoints, because an update may come before they are written.
bool copies_for_checkpoints(const TrainConfig& config);

// Returns checkpoint.timeout. 0 is for ever, which no other value is rounded to.
std::chrono::milliseconds disk_timeout(const TrainConfig::Checkpoint& config);

// run_length: the run's length in optim.schedule_unit.
optim::LrScheduleOptions lr_schedule_options(const TrainConfig::Optim& optim, std::int64_t run_length);

}  // namespace ddprun::trainer
