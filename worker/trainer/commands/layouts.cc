#include "worker/trainer/commands/layouts.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "common/rounding.h"
#include "worker/trainer/config/run_settings.h"

namespace ddprun::trainer {
namespace {

using Axes = std::vector<const ModelAxis*>;

Axes possible_axes(const TrainConfig& config) {
  Axes possible;
  for (const ModelAxis& axis : model_axes())
    if (!axis.is_possible || axis.is_possible(config)) possible.push_back(&axis);
  return possible;
}

// Returns the ranks that exchange in every layer.
int neighbours(const Layout& layout) {
  int ranks = 1;
  for (const ModelAxis* axis : axes_in_use(layout.ranks))
    if (!axis->is_outermost) ranks *= layout.ranks.on(axis->name());
  return ranks;
}

bool is_candidate(const Layout& layout) {
  return !is_product(layout) || neighbours(layout) <= most_neighbours;
}

// Adds the candidates that divide layout.data among these axes as well.
void add_factorisations(std::span<const ModelAxis* const> axes, const Layout& layout, std::vector<Layout>& all) {
  if (axes.empty()) {
    if (is_candidate(layout)) all.push_back(layout);
    return;
  }
  for (int size = 1; size <= layout.data; ++size) {
    if (layout.data % size != 0) continue;
    Layout divided = layout;
    divided.data /= size;
    divided.ranks[axes.front()->name()] = size;
    add_factorisations(axes.subspan(1), divided, all);
  }
}

}  // namespace

std::string to_string(const Layout& layout) {
  std::string text = fmt::format("data {}", layout.data);
  for (const ModelAxis* axis : axes_in_use(layout.ranks))
    text += fmt::format(" x {} {}", axis->name(), layout.ranks.on(axis->name()));
  if (layout.zero > 0) text += fmt::format(", zero {}", layout.zero);
  return text;
}

bool is_product(const Layout& layout) {
  return axes_in_use(layout.ranks).size() > 1;
}

std::vector<Layout> layouts_of(const TrainConfig& config, int ranks) {
  std::vector<Layout> all;
  add_factorisations(possible_axes(config), {.data = ranks, .ranks = {}}, all);
  std::ranges::stable_sort(all, {}, is_product);
  std::vector<Layout> with_zero;
  for (Layout layout : all) {
    const std::int64_t most = ranks_of_model(with_layout(config, layout).parallel.ranks) < ranks ? 3 : 0;
    for (layout.zero = 0; layout.zero <= most; ++layout.zero) with_zero.push_back(layout);
  }
  return with_zero;
}

TrainConfig with_layout(const TrainConfig& config, const Layout& layout) {
  constexpr std::int64_t micro_batches_of_stage = 4;
  TrainConfig result = config;
  auto& p = result.parallel;
  p.ranks = layout.ranks;
  p.zero = layout.zero;
  if (p.zero < 2) p.sharded.shard_group = 0;
  const int ranks = layout.data * ranks_of_replica(p.ranks);
  const std::int64_t step = batch_sizes(config.train, ranks).step;
  const std::int64_t samples = divide_up<std::int64_t>(step, ranks / ranks_of_sample(p.ranks));
  result.train.global_batch_size = step;
  result.train.batch_size = 0;
  if (p.ranks.on("pipeline") > 1) result.train.accumulate = 1;  // micro-batches replace it
  if (p.ranks.on("pipeline") == 1)
    p.micro_batches = 0;
  else if (p.micro_batches == 0)
    p.micro_batches = static_cast<int>(std::min(samples, micro_batches_of_stage * p.ranks.on("pipeline")));
  return result;
}

}  // namespace ddprun::trainer
