#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "common/config/settings.h"
#include "worker/data/dataset.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/commands/computed_step.h"
#include "worker/trainer/commands/measured_step.h"
#include "worker/trainer/commands/rank_use.h"
#include "worker/trainer/commands/small_job.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/stopwatch.h"

namespace ddprun::trainer {

// The cost of a job's step at a rank, estimated before the job runs.
struct StepPlan {
  int ranks = 1;                                 // those of the job
  RankUse use = {};                              // that of the rank that has the most
  std::optional<std::size_t> sent = {};          // bytes_sent_in_step()
  bool is_computed = false;                      // false if memory and bytes are those of the measured steps
  std::int64_t computed_blocks = 0, blocks = 0;  // ComputedStep's
  bool activations_are_measured = false;

  std::optional<Seconds> time = {};  // the median of steps that were measured here, scaled
  int measured_ranks = 0;            // the ranks with which it was measured
  std::size_t steps = 0;             // the steps of which it is the median
  bool is_slice = false;             // SmallJob's
  std::string reason = {};           // set if there is no time: the cause
};

// Measures a job here.
using Measure = std::function<MeasuredStep(const SmallJob& job)>;

// Computes memory and bytes (computed_step.h), and measures the time of a small_job() where this machine has the memory
// for it: the time that ranks compute grows with their operations, and that for which they wait with the bytes sent.
// Measures the figures that cannot be computed. samples: the layout of the training samples. computed: compute_step()
// of the job, if the caller has it. Throws what the parts throw.
StepPlan plan_step(const TrainConfig& config, const data::SampleLayout& samples, int ranks,
                   const plugin::Registry& registry, const Measure& measure, std::optional<ComputedStep> computed = {});

// "ddprun-worker plan --ranks N": writes the table of plan_step() to standard output. Call it while the process has one
// thread.
void plan(const TrainConfig& config, const Settings& settings, int ranks, const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
