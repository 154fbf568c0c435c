#include "worker/trainer/commands/scaled_stages.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/rounding.h"
#include "worker/trainer/commands/dry_step.h"
#include "worker/trainer/commands/replica_sizes.h"
#include "worker/trainer/config/run_settings.h"

namespace ddprun::trainer {
namespace {

using Stages = std::vector<RankUse>;

// A linear function has at x the sum of its values at two points, times these weights. If the points are one, the
// first counts.
struct Weights {
  double first = 1, second = 0;
};
Weights weights_at(double x, double first, double second) {
  if (first == second) return {};
  const double share = (x - first) / (second - first);
  return {1 - share, share};
}

constexpr std::array in_memory{&RankUse::parameters,        &RankUse::gradients,      &RankUse::optimizer,
                               &RankUse::averages,          &RankUse::activations,    &RankUse::gathered,
                               &RankUse::shared_parameters, &RankUse::shared_buffers, &RankUse::shared_experts,
                               &RankUse::sent_for_update,   &RankUse::copied,         &RankUse::kept};
constexpr std::array in_step{&RankUse::sent_within, &RankUse::operations};

Stages combined(const Stages& a, const Stages& b, Weights memory, Weights step) {
  Stages all = a;
  for (std::size_t s = 0; s < all.size(); ++s) {
    for (const auto figure : in_memory) all[s].*figure = memory.first * a[s].*figure + memory.second * b[s].*figure;
    for (const auto figure : in_step) all[s].*figure = step.first * a[s].*figure + step.second * b[s].*figure;
  }
  return all;
}

// Micro-batches that the first stage has in flight.
double in_flight(const TrainConfig::Parallel& p) {
  return p.schedule == "gpipe" ? p.micro_batches : std::min(p.pipeline, p.micro_batches);
}

// Returns the names of the blocks with which stages begin.
std::string even_split(int stages, std::int64_t blocks_of_stage) {
  std::string names;
  for (int stage = 1; stage < stages; ++stage)
    names += fmt::format("{}h.{}", stage > 1 ? ", " : "", stage * blocks_of_stage);
  return names;
}

// The size of a job that is computed.
struct Size {
  int stages = 1;
  int most_micro_batches = 0;  // of a pipeline
};

// The given job, and the jobs computed for it.
class Scaling {
 public:
  Scaling(const TrainConfig& config, std::int64_t blocks, const data::SampleLayout& samples, int ranks,
          const plugin::Registry& registry)
      : config_(config),
        samples_(samples),
        ranks_(ranks),
        registry_(registry),
        period_(config.model.experts > 0 ? config.model.expert_every : 1),
        blocks_of_stage_(divide_up<std::int64_t>(blocks, config.parallel.pipeline)) {}

  ScaledStages compute() {
    const auto& p = config_.parallel;
    if (p.pipeline == 1) return {of_size({}), largest_};
    // One micro-batch more than stages: each schedule gets to where passes alternate. The others are alike.
    const Size one{2, 3}, other{std::min(p.pipeline, 3), 4};
    const auto first = resized(one, 1).parallel, second = resized(other, 1).parallel;
    Stages stages =
        combined(of_size(one), of_size(other), weights_at(in_flight(p), in_flight(first), in_flight(second)),
                 weights_at(p.micro_batches, first.micro_batches, second.micro_batches));
    return {std::move(stages), largest_};
  }

 private:
  // Returns the job with other numbers of stages and blocks, and micro-batches of the same size.
  TrainConfig resized(const Size& size, std::int64_t blocks_of_stage) const {
    TrainConfig config = config_;
    auto& p = config.parallel;
    config.model.layers = blocks_of_stage * size.stages;
    if (p.pipeline == 1) return config;
    const int sharing = ranks_ / ranks_of_sample(p);
    const std::int64_t micro = micro_batch_size(config, sharing);
    p.micro_batches = std::min(p.micro_batches, size.most_micro_batches);
    p.pipeline = size.stages;
    p.split = even_split(size.stages, blocks_of_stage);
    config.train.batch_size = 0;
    config.train.global_batch_size = micro * p.micro_batches * sharing;
    return config;
  }

  Stages run(const Size& size, std::int64_t blocks_of_stage) {
    const TrainConfig config = resized(size, blocks_of_stage);
    const int ranks_of_stage = ranks_ / config_.parallel.pipeline, ranks = ranks_of_stage * size.stages;
    largest_ = std::max(largest_, config.model.layers);
    Stages stages{dry_step(config, samples_, ranks, 0, registry_)};
    if (size.stages > 1) stages.push_back(dry_step(config, samples_, ranks, ranks - ranks_of_stage, registry_));
    return stages;
  }

  Stages of_size(const Size& size) {
    // Parameters of two blocks are gathered at a time, and the gradients of a third one may still be reduced.
    const std::int64_t in_use = config_.parallel.zero == 3 ? 3 : 1;
    const std::int64_t few = in_use * period_, more = few + period_;
    if (blocks_of_stage_ <= more) return run(size, blocks_of_stage_);
    const auto weights =
        weights_at(static_cast<double>(blocks_of_stage_), static_cast<double>(few), static_cast<double>(more));
    return combined(run(size, few), run(size, more), weights, weights);
  }

  const TrainConfig& config_;
  const data::SampleLayout& samples_;
  const int ranks_;
  const plugin::Registry& registry_;
  const std::int64_t period_;  // of so many blocks one may have experts
  const std::int64_t blocks_of_stage_;
  std::int64_t largest_ = 0;
};

}  // namespace

bool can_scale_stages(const TrainConfig& config, std::int64_t blocks) {
  const auto& p = config.parallel;
  constexpr std::int64_t few = 8;
  const std::int64_t period = config.model.experts > 0 ? config.model.expert_every : 1;
  if (blocks <= few * period || p.pipeline > blocks) return false;
  return p.pipeline == 1 || (config.model.name == "gpt" && p.virtual_stages == 1 && p.split.empty());
}

ScaledStages scaled_stages(const TrainConfig& config, std::int64_t blocks, const data::SampleLayout& samples, int ranks,
                           const plugin::Registry& registry) {
  return Scaling(config, blocks, samples, ranks, registry).compute();
}

}  // namespace ddprun::trainer
