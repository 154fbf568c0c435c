#pragma once

#include <cstdint>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/plugin/registry.h"
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

// Computes by dry_step() jobs with few blocks a stage, of pipelines with two and three stages and few
// micro-batches, and continues the lines through their figures: all memory is a linear function of the blocks of a
// stage and of the micro-batches in flight, and bytes and operations are one of blocks and of micro-batches. The stages
// have equally many blocks, as many as the one with the most of an even division.
// REQUIRES: can_scale_stages(). Throws what dry_step() throws.
ScaledStages scaled_stages(const TrainConfig& config, std::int64_t blocks, const data::SampleLayout& samples, int ranks,
                           const plugin::Registry& registry);

}  // namespace ddprun::trainer
