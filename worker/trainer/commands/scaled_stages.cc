#include "worker/trainer/commands/scaled_stages.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "common/rounding.h"
#include "worker/optim/optimizer.h"
#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/run_settings.h"

namespace ddprun::trainer {
namespace {

using Stages = std::vector<RankUse>;

// Returns how far x lies on the way from the first point to the second; 0 if they are one.
double share_of_way(double x, double first, double second) {
  return first == second ? 0 : (x - first) / (second - first);
}

constexpr std::array in_memory{&RankUse::parameters,        &RankUse::gradients,      &RankUse::optimizer,
                               &RankUse::averages,          &RankUse::activations,    &RankUse::gathered,
                               &RankUse::shared_parameters, &RankUse::shared_buffers, &RankUse::shared_experts,
                               &RankUse::sent_for_update,   &RankUse::copied,         &RankUse::kept};
constexpr std::array in_step{&RankUse::sent_within, &RankUse::operations};

// Adds shares of the differences between two jobs' figures.
void add_difference(Stages& stages, const Stages& first, const Stages& second, double memory, double step) {
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const auto figure : in_memory) stages[s].*figure += memory * (second[s].*figure - first[s].*figure);
    for (const auto figure : in_step) stages[s].*figure += step * (second[s].*figure - first[s].*figure);
  }
}

// Micro-batches that the first stage has in flight.
double in_flight(const TrainConfig::Parallel& p) {
  return p.schedule == "gpipe" ? p.micro_batches : std::min(p.ranks.on("pipeline"), p.micro_batches);
}

// Returns the names of the blocks with which stages begin.
std::string even_split(int stages, std::int64_t blocks_of_stage) {
  std::string names;
  for (int stage = 1; stage < stages; ++stage)
    names += fmt::format("{}h.{}", stage > 1 ? ", " : "", stage * blocks_of_stage);
  return names;
}

// Returns whether what a rank has of the state is in proportion to the inverse of the replicas, or independent of them.
bool divides_evenly(const TrainConfig& config) {
  return config.parallel.sharded.shard_group == 0 && optim::is_elementwise(config.optim.name);
}

// Returns whether what a rank has of the state, or writes of it, depends on the replicas.
bool depends_on_replicas(const TrainConfig& config) {
  return config.parallel.zero > 0 || copies_for_checkpoints(config);
}

// The size of a job that is computed.
struct Size {
  int replicas = 1;
  int stages = 1;
  int most_micro_batches = 0;  // of a pipeline
};

// The given job, and the jobs computed for it.
class Scaling {
 public:
  Scaling(const TrainConfig& config, std::int64_t blocks, int ranks, DrySteps& steps)
      : config_(config),
        steps_(steps),
        ranks_of_replica_(ranks_of_replica(config.parallel.ranks)),
        replicas_(ranks / ranks_of_replica_),
        micro_batch_(micro_batch_size(config, ranks / ranks_of_sample(config.parallel.ranks))),
        period_(config.model.experts.experts > 0 ? config.model.experts.every : 1),
        blocks_of_stage_(divide_up<std::int64_t>(blocks, config.parallel.ranks.on("pipeline"))) {}

  ScaledStages compute() {
    if (config_.parallel.ranks.on("pipeline") == 1) return {of_size({.replicas = replicas_}), largest_};
    const int few = divides_evenly(config_) ? std::min(replicas_, 4) : replicas_, more = std::min(replicas_, 2 * few);
    // One micro-batch more than stages: each schedule gets to where passes alternate. The others are alike.
    const Size size{few, 2, 3}, longer{few, std::min(config_.parallel.ranks.on("pipeline"), 3), 4}, wider{more, 2, 3};
    const Stages first = of_size(size);
    Stages stages = first;
    const auto& p = config_.parallel;
    const auto short_one = resized(size, 1).parallel, long_one = resized(longer, 1).parallel;
    add_difference(stages, first, of_size(longer),
                   share_of_way(in_flight(p), in_flight(short_one), in_flight(long_one)),
                   share_of_way(p.micro_batches, short_one.micro_batches, long_one.micro_batches));
    const double share = share_of_way(1.0 / replicas_, 1.0 / few, 1.0 / more);
    if (share > 0 && depends_on_replicas(config_)) add_difference(stages, first, of_size(wider), share, share);
    return {std::move(stages), largest_};
  }

 private:
  // Returns the job with other numbers of replicas, stages and blocks, and micro-batches of the same size.
  TrainConfig resized(const Size& size, std::int64_t blocks_of_stage) const {
    TrainConfig config = config_;
    auto& p = config.parallel;
    config.model.gpt.layers = blocks_of_stage * size.stages;
    if (p.ranks.on("pipeline") == 1) return config;
    p.micro_batches = std::min(p.micro_batches, size.most_micro_batches);
    p.ranks["pipeline"] = size.stages;
    p.split = even_split(size.stages, blocks_of_stage);
    config.train.batch_size = 0;
    config.train.global_batch_size =
        micro_batch_ * p.micro_batches * size.replicas * ranks_of_replica_ / ranks_of_sample(config_.parallel.ranks);
    return config;
  }

  Stages run(const Size& size, std::int64_t blocks_of_stage) {
    const TrainConfig config = resized(size, blocks_of_stage);
    const int ranks_of_stage = size.replicas * ranks_of_replica_ / config_.parallel.ranks.on("pipeline");
    const int ranks = ranks_of_stage * size.stages;
    largest_ = std::max(largest_, config.model.gpt.layers);
    Stages stages{steps_.of(config, ranks, 0)};
    if (size.stages > 1) stages.push_back(steps_.of(config, ranks, ranks - ranks_of_stage));
    return stages;
  }

  Stages of_size(const Size& size) {
    // Parameters of two blocks are gathered at a time, and the gradients of a third one may still be reduced.
    const std::int64_t in_use = config_.parallel.zero == 3 ? 3 : 1;
    const std::int64_t few = in_use * period_, more = few + period_;
    if (blocks_of_stage_ <= more) return run(size, blocks_of_stage_);
    const Stages first = run(size, few);
    Stages stages = first;
    const double share =
        share_of_way(static_cast<double>(blocks_of_stage_), static_cast<double>(few), static_cast<double>(more));
    add_difference(stages, first, run(size, more), share, share);
    return stages;
  }

  const TrainConfig& config_;
  DrySteps& steps_;
  const int ranks_of_replica_;
  const int replicas_;
  const std::int64_t micro_batch_;
  const std::int64_t period_;  // of so many blocks one may have experts
  const std::int64_t blocks_of_stage_;
  std::int64_t largest_ = 0;
};

}  // namespace

bool can_scale_stages(const TrainConfig& config, std::int64_t blocks) {
  const auto& p = config.parallel;
  constexpr std::int64_t few = 8;
  const std::int64_t period = config.model.experts.experts > 0 ? config.model.experts.every : 1;
  if (blocks <= few * period || p.ranks.on("pipeline") > blocks) return false;
  return p.ranks.on("pipeline") == 1 || (config.model.name == "gpt" && p.virtual_stages == 1 && p.split.empty());
}

ScaledStages scaled_stages(const TrainConfig& config, std::int64_t blocks, int ranks, DrySteps& steps) {
  return Scaling(config, blocks, ranks, steps).compute();
}

}  // namespace ddprun::trainer
