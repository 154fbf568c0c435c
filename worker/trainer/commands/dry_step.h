#pragma once

#include "worker/data/dataset.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/commands/rank_use.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Returns whether dry_step() computes the job: the model of a rank is on one device, and steps are made by all ranks
// together.
bool has_dry_step(const TrainConfig& config);

// Runs a step of one rank of a job of so many without values (ShapeOnlyScope), in a group whose other ranks do not
// exist (comm::make_dry_group()): the figures follow from what model, forms of parallelism, optimizer and session do,
// and no process, memory or arithmetic is needed for them. samples: the layout of the training samples.
//
// Two of the micro-batches are run where all are alike, and the others counted. Communication hooks are left out.
// REQUIRES: has_dry_step(). Throws what the session throws.
RankUse dry_step(const TrainConfig& config, const data::SampleLayout& samples, int ranks, int rank,
                 const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
