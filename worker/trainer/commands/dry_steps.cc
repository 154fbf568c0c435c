#include "worker/trainer/commands/dry_steps.h"

#include "worker/trainer/config/model_axes.h"

namespace ddprun::trainer {

DrySteps::Key DrySteps::key_of(const TrainConfig& config, int ranks, int rank) {
  const auto& p = config.parallel;
  const auto& t = config.train;
  Key key{.numbers = {ranks, rank, p.zero, p.sharded.shard_group, p.micro_batches, p.sequence, config.model.gpt.layers,
                      t.batch_size, t.global_batch_size, t.accumulate},
          .split = p.split};
  for (const ModelAxis& axis : model_axes()) key.numbers.push_back(p.ranks.on(axis.name()));
  return key;
}

RankUse DrySteps::of(const TrainConfig& config, int ranks, int rank) {
  std::shared_future<RankUse> use;
  {
    const std::lock_guard lock(mutex_);
    auto& known = known_[key_of(config, ranks, rank)];
    if (!known.valid())  // the first thread that asks for the figures runs the step
      known = std::async(std::launch::deferred, [=, this] {
                return dry_step(config, samples_, ranks, rank, registry_);
              }).share();
    use = known;
  }
  return use.get();
}

}  // namespace ddprun::trainer
