#pragma once

#include <cstdint>
#include <vector>

#include "worker/trainer/commands/dry_steps.h"
#include "worker/trainer/commands/rank_use.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// The figures of a transformer whose blocks are alike, from jobs with fewer of them.
struct ScaledStages {
  std::vector<RankUse> stages;  // of the first and the last one of a pipeline, otherwise of the only one
  std::int64_t blocks = 0;      // of the largest job that was computed
};

// Returns whether scaled_stages() can be computed with fewer blocks than the model has.
bool can_scale_stages(const TrainConfig& config, std::int64_t blocks);

// Computes jobs with few blocks a stage, of pipelines with two and three stages, few micro-batches and few replicas,
// and continues the lines through their figures: all memory is a linear function of the blocks of a stage, of the
// micro-batches in flight and of the inverse of the replicas, and bytes and operations are one of blocks and of
// micro-batches. The stages have equally many blocks, as many as the one with the most of an even division.
// REQUIRES: can_scale_stages(). Throws what dry_step() throws.
ScaledStages scaled_stages(const TrainConfig& config, std::int64_t blocks, int ranks, DrySteps& steps);

}  // namespace ddprun::trainer
