#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/config/settings.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/plugin/registry.h"
#include "ddprun/worker/trainer/datasets.h"
#include "ddprun/worker/trainer/memory_report.h"
#include "ddprun/worker/trainer/stopwatch.h"
#include "ddprun/worker/trainer/train_config.h"

namespace ddprun::trainer {

// What a step of a job will take, before the job runs.
struct StepPlan {
  int ranks = 1;           // of the job
  int measured_ranks = 1;  // with which the time was measured
  std::size_t steps = 0;   // of which the time is the median
  MemoryUse memory;
  std::optional<std::size_t> sent;  // bytes_sent_in_step()
  Seconds time{0};
};

// Trains a fresh model for some steps in this group and takes the measures of a job of so many ranks; nothing is
// written. With fewer ranks in the group, the time to wait for the others is scaled by the bytes sent, or by those of
// an all-reduce where they are not known. Memory and time are this rank's. Collective.
StepPlan measure_plan(const TrainConfig& config, const Datasets& datasets, ProcessGroup& group, int ranks,
                      const plugin::Registry& registry = {});

// Lines of a table.
std::vector<std::string> plan_table(const StepPlan& plan);

// "ddprun-worker plan --ranks N": measures with N ranks on this machine, at most one for each of its processors, and
// writes the table to standard output. Call it while the process has one thread. Throws what the parts throw.
void plan(const TrainConfig& config, const Settings& settings, int ranks, const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
