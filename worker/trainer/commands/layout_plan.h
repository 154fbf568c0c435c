#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/common/config/settings.h"
#include "ddprun/worker/plugin/registry.h"
#include "ddprun/worker/trainer/commands/step_plan.h"
#include "ddprun/worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// How the ranks of a job share the work: data x tensor x pipeline, data x context, or data x expert, and what
// parallel.zero divides of the first.
struct Layout {
  int data = 1, tensor = 1, pipeline = 1;
  std::int64_t zero = 0;
  int context = 1, expert = 1;
  bool operator==(const Layout&) const = default;
};
// "data 2 x tensor 2 x pipeline 2", "data 8, zero 1"
std::string to_string(const Layout& layout);

// Every factorisation of the ranks; that of data alone with each stage of ZeRO as well; data x expert of a model with
// experts. A pure function.
std::vector<Layout> layouts_of(int ranks, bool has_experts);
// The job with this layout, and the samples of a step that it has with data parallelism alone. A pipeline without
// parallel.micro_batches has four for each stage, or as many as samples.
TrainConfig with_layout(const TrainConfig& config, const Layout& layout);

// The share of time in which stages of equal cost wait; 0 without a pipeline.
double bubble_of(const TrainConfig::Parallel& parallel);

struct LayoutPlan {
  Layout layout;
  std::optional<StepPlan> step;  // none: the layout does not fit, or cannot be tried here
  double bubble = 0;
  std::string reason;    // why
  bool is_tried = true;  // whether this machine has the processors for it
};

// Lines of a table, the fastest first, then those that cannot be tried, then those that do not fit.
std::vector<std::string> layout_table(std::vector<LayoutPlan> plans);

// "ddprun-worker plan --world_size N": measures every layout as plan() does its one, with at most as many processes as
// this machine has processors, or two, and writes the table to standard output; which layout is measured, to standard
// error. Call it while the process has one thread. Throws Errc::usage if the job fits none of them.
void plan_layouts(const TrainConfig& config, const Settings& settings, int ranks,
                  const plugin::Registry& registry = {});

}  // namespace ddprun::trainer
