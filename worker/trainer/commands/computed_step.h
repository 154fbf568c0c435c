#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker/data/dataset.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/commands/dry_steps.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// The memory, bytes and operations of a job's step at one rank, found without running the job.
struct ComputedStep {
  RankUse use = {};                      // that of the rank that has the most memory
  std::optional<std::size_t> sent = {};  // bytes_sent_in_step() and those within a replica, at the first stage
  double operations = 0;                 // those of the rank that computes the most
  // The blocks of a transformer from which all of it was computed, and its own; equal where nothing was scaled.
  std::int64_t computed_blocks = 0, blocks = 0;
};

// Computes the step of a job of so many ranks by dry_step(), of a pipeline that of up to eight stages; that of a deep
// transformer by scaled_stages().
// REQUIRES: has_dry_step(). Throws what dry_step() throws, and Errc::usage for axes that do not divide the ranks.
ComputedStep compute_step(const TrainConfig& config, const data::SampleLayout& samples, int ranks,
                          const plugin::Registry& registry = {});
// Does the same for a job of which other layouts are computed from the same steps.
ComputedStep compute_step(const TrainConfig& config, int ranks, DrySteps& steps);

}  // namespace ddprun::trainer
