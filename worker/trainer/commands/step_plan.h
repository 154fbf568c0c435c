#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/config/settings.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/plugin/registry.h"
#include "ddprun/worker/trainer/config/train_config.h"
#include "ddprun/worker/trainer/report/memory_report.h"
#include "ddprun/worker/trainer/session/stopwatch.h"
#include "ddprun/worker/trainer/state/datasets.h"

namespace ddprun::trainer {

// The cost of a job's step at a rank, estimated before the job runs.
struct StepPlan {
  int ranks = 1;                    // those of the job
  int measured_ranks = 1;           // the ranks with which the time was measured
  std::size_t steps = 0;            // the steps of which the time is the median
  MemoryUse memory;                 // that of the rank that has the most
  std::optional<std::size_t> sent;  // bytes_sent_in_step()
  Seconds time{0};
};

// Trains a fresh model for some steps in this group and takes the measures of a job of so many ranks; nothing is
// written. With fewer ranks in the group, the time to wait for the others is scaled by the bytes sent, or by those of
// an all-reduce where they are not known, and what parallel.zero divides is divided further. Bytes and time are this
// rank's. Collective.
StepPlan measure_plan(const TrainConfig& config, const Datasets& datasets, ProcessGroup& group, int ranks,
                      const plugin::Registry& registry = {});

// Returns the lines of a table.
std::vector<std::string> plan_table(const StepPlan& plan);

// Returns the number of ranks with which this machine measures a job of so many: as many groups of ranks that share
// samples as it has processors for, at least one.
int measured_ranks(const TrainConfig& config, int ranks);

// "ddprun-worker plan --ranks N": measures with measured_ranks() and writes the table to standard output. Call it while
// the process has one thread. Throws what the parts throw.
void plan(const TrainConfig& config, const Settings& settings, int ranks, const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
