#pragma once

#include <memory>
#include <optional>

#include "common/config/settings.h"
#include "worker/comm/init.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/shared_items.h"
#include "worker/trainer/state/datasets.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Parts of a training run that do not depend on the rank.
struct PreparedRun {
  Datasets datasets;
  SharedItems items;
  TrainState state;                                // the one before the first step
  std::shared_ptr<comm::PreviousGroup> own_group;  // has memory for the job's group soon after this object is made
};

// Makes these parts for a job of so many ranks, and trains one step with a rank's micro-batch in a run of its own,
// without output and files: all that a process does only in its first step is done then (generated code, memory).
// The next run has the bits of one in a new process. Returns none after an error, which that run will report.
// Threads that remain block all signals.
std::optional<PreparedRun> prepare_run(const TrainConfig& config, const Settings& settings,
                                       const plugin::Registry& registry, int ranks);

}  // namespace ddprun::trainer
