#include "worker/trainer/commands/computed_step.h"

#include <algorithm>
#include <vector>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/nn/models.h"
#include "worker/trainer/commands/scaled_stages.h"
#include "worker/trainer/commands/step_traffic.h"
#include "worker/trainer/config/group_settings.h"
#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {
namespace {

// Returns the number of blocks of a transformer; 0 for another model.
std::int64_t blocks_of(const TrainConfig::Model& m, const plugin::Registry& registry) {
  const bool repeats = (m.name == "gpt" || m.name == "transformer") && !registry.models.contains(m.name);
  return repeats ? nn::with_preset({.preset = m.gpt.preset, .layers = m.gpt.layers}).layers : 0;
}

void check(const TrainConfig& config, std::int64_t blocks, int ranks) {
  const auto& p = config.parallel;
  naming_mesh_key(p, [&] { return mesh_sizes(mesh_axes(p.ranks), ranks); });
  constexpr std::int64_t others = 3;  // embedding, last normalization and output
  if (blocks > 0 && p.ranks.on("pipeline") > blocks + others)
    throw make_error(Errc::usage, "parallel.pipeline = {}: the model has {} pieces with parameters",
                     p.ranks.on("pipeline"), blocks + others);
}

std::vector<RankUse> whole_stages(const TrainConfig& config, int ranks, DrySteps& steps) {
  constexpr int most = 8;
  const int stages = config.parallel.ranks.on("pipeline"), count = std::min(stages, most);
  std::vector<RankUse> all;
  for (int i = 0; i < count; ++i) {
    const int stage = stages <= most ? i : i * (stages - 1) / (most - 1);
    all.push_back(steps.of(config, ranks, stage * (ranks / stages)));
  }
  return all;
}

std::optional<std::size_t> sent_by(const TrainConfig& config, const RankUse& use, int ranks) {
  const auto& p = config.parallel;
  const auto bytes = [](double value) { return static_cast<std::size_t>(rounded(value)); };
  const SharedBytes shared{.parameters = bytes(use.shared_parameters),
                           .buffers = bytes(use.shared_buffers),
                           .experts = bytes(use.shared_experts)};
  const auto micro_batches = micro_batches_of_step(config, ranks / ranks_of_sample(p.ranks));
  const auto sent = bytes_sent_in_step(p, shared, micro_batches, ranks / ranks_of_model(p.ranks));
  return sent ? std::optional(*sent + bytes(use.sent_within + use.sent_for_update)) : std::nullopt;
}

ComputedStep step_of(const TrainConfig& config, const std::vector<RankUse>& stages, int ranks) {
  return {.use = *std::ranges::max_element(stages, {}, &RankUse::memory),
          .sent = sent_by(config, stages.front(), ranks),
          .operations = std::ranges::max_element(stages, {}, &RankUse::operations)->operations};
}

ComputedStep whole_step(const TrainConfig& config, std::int64_t blocks, int ranks, DrySteps& steps) {
  check(config, blocks, ranks);
  ComputedStep step = step_of(config, whole_stages(config, ranks, steps), ranks);
  step.blocks = step.computed_blocks = blocks;
  return step;
}

}  // namespace

ComputedStep compute_step(const TrainConfig& config, const data::SampleLayout& samples, int ranks,
                          const plugin::Registry& registry) {
  DrySteps steps(samples, registry);
  return compute_step(config, ranks, steps);
}

ComputedStep compute_step(const TrainConfig& config, int ranks, DrySteps& steps) {
  const std::int64_t blocks = blocks_of(config.model, steps.registry());
  if (!can_scale_stages(config, blocks)) return whole_step(config, blocks, ranks, steps);
  check(config, blocks, ranks);
  const ScaledStages scaled = scaled_stages(config, blocks, ranks, steps);
  ComputedStep step = step_of(config, scaled.stages, ranks);
  step.blocks = blocks;
  step.computed_blocks = scaled.blocks;
  return step;
}

}  // namespace ddprun::trainer
