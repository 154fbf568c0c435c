#pragma once

#include <array>
#include <cstddef>

#include "worker/comm/process_group.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/commands/rank_use.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/stopwatch.h"
#include "worker/trainer/state/datasets.h"

namespace ddprun::trainer {

// The times of steps that ranks have made here, and what they took. A trivial value, for memory that processes share.
struct MeasuredStep {
  static constexpr std::size_t most_steps = 50;

  int ranks = 1;
  std::size_t steps = 0;
  RankUse use;                                   // that of the rank that has the most; operations are not counted
  std::array<double, most_steps> own{}, wait{};  // rank 0's seconds by step

  // Returns the median step, if own work and waiting for others took so many times as long.
  Seconds median(double own_factor, double waiting_factor) const;
};

// Trains a fresh model for some steps in this group; nothing is written, except a line now and then that says how far
// it is. Collective.
MeasuredStep measure_step(const TrainConfig& config, const Datasets& datasets, ProcessGroup& group,
                          const plugin::Registry& registry = {});

// Does it with so many processes forked from this one, which has to have one thread.
MeasuredStep measure_step(const TrainConfig& config, const Datasets& datasets, int ranks,
                          const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
