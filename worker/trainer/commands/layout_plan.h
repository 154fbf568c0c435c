#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/config/settings.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/commands/layouts.h"
#include "worker/trainer/commands/step_plan.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

struct LayoutPlan {
  Layout layout;
  std::optional<StepPlan> step;  // none if the layout does not fit
  double bubble = 0;
  std::string reason;  // set if there is no step: the cause
};

// Returns lines of a table: the fastest first, then those without a time, the least memory first, then those that do
// not fit; then why there are layouts without a time.
std::vector<std::string> layout_table(std::vector<LayoutPlan> plans);

// "ddprun-worker plan --world_size N": plans every layout by plan_step() and writes the table to standard output, and
// which layout is being measured to standard error. Call it while the process has one thread. Throws Errc::usage if the
// job fits none of them.
void plan_layouts(const TrainConfig& config, const Settings& settings, int ranks,
                  const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
