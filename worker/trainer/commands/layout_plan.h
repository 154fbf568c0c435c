#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/config/settings.h"
#include "worker/plugin/registry.h"
#include "worker/trainer/commands/step_plan.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// The division of the work among the ranks of a job: pipeline x data x expert x context x tensor, and what
// parallel.zero divides of the state.
struct Layout {
  int data = 1, tensor = 1, pipeline = 1;
  std::int64_t zero = 0;
  int context = 1, expert = 1;
  bool operator==(const Layout&) const = default;
};
// Returns a text such as "data 2 x tensor 2 x pipeline 2" or "data 8, zero 1".
std::string to_string(const Layout& layout);

// Returns the factorisations of the ranks, those with experts for a model that has some, and with each stage of ZeRO
// where there are replicas of a part of the model: first those with one axis beside data, then products of several
// axes, in which at most most_neighbours ranks exchange in every layer. A pure function.
inline constexpr int most_neighbours = 8;
std::vector<Layout> layouts_of(int ranks, bool has_experts);
// Returns the job with this layout, and the samples of a step that it has with only data parallelism. A pipeline
// without parallel.micro_batches has four for each stage, or as many as samples.
TrainConfig with_layout(const TrainConfig& config, const Layout& layout);

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
