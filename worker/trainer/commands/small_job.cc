#include "worker/trainer/commands/small_job.h"

#include <algorithm>

#include "worker/trainer/config/model_axes.h"
#include "worker/trainer/config/run_settings.h"

namespace ddprun::trainer {
namespace {

constexpr int most_ranks = 2;  // one rank would say nothing of the exchange

// Leaves two ranks: those on the axis whose ranks exchange most.
void divide_less(TrainConfig::Parallel& p) {
  bool is_kept = false;
  for (const ModelAxis* axis : axes_in_use(p.ranks)) {
    p.ranks[axis->name()] = is_kept ? 1 : most_ranks;
    is_kept = true;
  }
  if (p.ranks.on("tensor") == 1) p.sequence = false;
  p.split.clear();
  p.virtual_stages = 1;
  if (p.schedule == "interleaved") p.schedule = "1f1b";
}

}  // namespace

SmallJob small_job(const TrainConfig& config, int ranks) {
  SmallJob job{.config = config};
  TrainConfig& c = job.config;
  auto& p = c.parallel;
  const int sharing = ranks / ranks_of_sample(p.ranks);
  c.train.global_batch_size = 0;
  if (ranks_of_replica(p.ranks) <= most_ranks) {
    c.train.batch_size = batch_sizes(config.train, sharing).micro;
  } else {
    job.is_slice = true;
    c.train.batch_size = micro_batch_size(config, sharing);
    divide_less(p);
    constexpr int micro_batches_of_stage = 4;
    p.micro_batches =
        p.ranks.on("pipeline") > 1 ? std::min(p.micro_batches, micro_batches_of_stage * p.ranks.on("pipeline")) : 0;
    c.train.batch_size *= std::max(p.micro_batches, 1);
  }
  const int fewest = ranks_of_replica(p.ranks);
  job.ranks = std::max(fewest, std::min(ranks, most_ranks) / fewest * fewest);
  if (p.sharded.shard_group > 0 && (job.ranks / ranks_of_model(p.ranks)) % p.sharded.shard_group != 0)
    p.sharded.shard_group = 0;
  return job;
}

}  // namespace ddprun::trainer
