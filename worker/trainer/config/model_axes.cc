#include "worker/trainer/config/model_axes.h"

#include <algorithm>
#include <array>
#include <string>

#include <fmt/format.h>

#include "worker/trainer/config/checks.h"

namespace ddprun::trainer {
namespace {

void check_tensor(const TrainConfig& c, const Settings& settings) {
  const int tensor = c.parallel.ranks.on("tensor"), context = c.parallel.ranks.on("context");
  if (const int parts = tensor * context; c.parallel.sequence && c.data.context % parts != 0)
    reject(settings, "data.context",
           context == 1 ? fmt::format("it has to be a multiple of parallel.tensor = {}", tensor)
                        : fmt::format("it has to be a multiple of parallel.tensor parallel.context = {}", parts));
}

// Refuses models, tasks and lengths of samples whose positions ranks cannot divide.
void check_context(const TrainConfig& c, const Settings& settings) {
  if (c.model.name != "gpt")
    reject(settings, "parallel.context", "the model needs causal attention: model.name = gpt has to be given as well");
  if (c.train.task != "auto" && c.train.task != "language_modelling")
    reject(settings, "train.task", "with parallel.context a rank has scores of its positions: use language_modelling");
  if (const int pieces = 2 * c.parallel.ranks.on("context"); c.data.context % pieces != 0)
    reject(settings, "data.context", fmt::format("it has to be a multiple of 2 parallel.context = {}", pieces));
}

void check_expert(const TrainConfig& c, const Settings& settings) {
  if (const int ranks = c.parallel.ranks.on("expert"); c.model.experts.experts % ranks != 0)
    reject(settings, "model.experts", fmt::format("it has to be a multiple of parallel.expert = {}", ranks));
}

bool has_experts(const TrainConfig& c) {
  return c.model.experts.experts > 0;
}

void check_stages(const TrainConfig& c, const Settings& settings) {
  if (c.parallel.micro_batches == 0)
    reject(settings, "parallel.pipeline", "parallel.micro_batches has to be given as well");
}

constexpr std::array all_axes{
    ModelAxis{.key = "parallel.tensor",
              .help = "so many neighbouring ranks compute a model's layers together, each with a part of their weights "
                      "(tensor parallelism); the number of ranks is a multiple of it",
              .shards_state = true,
              .check = check_tensor},
    ModelAxis{.key = "parallel.pipeline",
              .help = "stages of the model, each on another rank: ranks are a grid of pipeline x data, of which the "
                      "second varies faster",
              .is_outermost = true,
              .shards_state = true,
              .has_own_losses = true,
              .check = check_stages},
    ModelAxis{.key = "parallel.context",
              .help = "with model.name = gpt: so many neighbouring ranks divide the positions of each sample (context "
                      "parallelism); data.context is a multiple of twice as many, and so is the number of ranks of it",
              .has_own_gradients = true,
              .has_own_losses = true,
              .check = check_context},
    ModelAxis{.key = "parallel.expert",
              .help = "with model.experts: so many neighbouring ranks divide the experts of each block (expert "
                      "parallelism); model.experts is a multiple of them, and so is the number of ranks",
              .shards_state = true,
              .has_own_samples = true,
              .has_own_gradients = true,
              .has_own_losses = true,
              .is_possible = has_experts,
              .check = check_expert}};

std::vector<const ModelAxis*> in_order_of_mesh() {
  std::vector<const ModelAxis*> order;
  for (const ModelAxis& axis : all_axes) order.insert(order.begin(), &axis);
  std::ranges::stable_partition(order, &ModelAxis::is_outermost);
  return order;
}

// Returns the number of ranks on the axes for which the member is not set.
int ranks_without(bool ModelAxis::*property, const AxisRanks& sizes) {
  int ranks = 1;
  for (const ModelAxis& axis : all_axes)
    if (!(axis.*property)) ranks *= sizes.on(axis.name());
  return ranks;
}

}  // namespace

std::span<const ModelAxis> model_axes() {
  return all_axes;
}

const ModelAxis& model_axis(std::string_view name) {
  return *std::ranges::find(all_axes, name, &ModelAxis::name);
}

AxisNames axes_with(bool ModelAxis::*property) {
  AxisNames names;
  for (const ModelAxis* axis : in_order_of_mesh())
    if (axis->*property) names.emplace_back(axis->name());
  return names;
}

std::vector<const ModelAxis*> axes_in_use(const AxisRanks& sizes) {
  std::vector<const ModelAxis*> used;
  for (const ModelAxis& axis : all_axes)
    if (sizes.on(axis.name()) > 1) used.push_back(&axis);
  return used;
}

std::vector<MeshAxis> mesh_axes(const AxisRanks& sizes) {
  std::vector<MeshAxis> outer, inner;
  for (const ModelAxis* axis : in_order_of_mesh())
    if (const int ranks = sizes.on(axis->name()); ranks > 1)
      (axis->is_outermost ? outer : inner).push_back({std::string(axis->name()), ranks});
  outer.push_back({"data", mesh_rest});
  outer.insert(outer.end(), inner.begin(), inner.end());
  return outer;
}

bool shards_state(const AxisRanks& sizes) {
  return std::ranges::any_of(axes_in_use(sizes), &ModelAxis::shards_state);
}

int ranks_of_model(const AxisRanks& sizes) {
  return ranks_without(&ModelAxis::has_own_gradients, sizes);
}

int ranks_of_sample(const AxisRanks& sizes) {
  return ranks_without(&ModelAxis::has_own_samples, sizes);
}

int ranks_of_replica(const AxisRanks& sizes) {
  int ranks = 1;
  for (const ModelAxis& axis : all_axes) ranks *= sizes.on(axis.name());
  return ranks;
}

}  // namespace ddprun::trainer
