#include "worker/trainer/commands/small_job.h"

#include <algorithm>

#include "worker/trainer/commands/replica_sizes.h"
#include "worker/trainer/config/run_settings.h"

namespace ddprun::trainer {
namespace {

constexpr int most_ranks = 2;  // one rank would say nothing of the exchange

// Leaves the first axis of several ranks, in this order, with two of them.
void divide_less(TrainConfig::Parallel& p) {
  bool is_kept = false;
  for (int* const axis : {&p.tensor, &p.pipeline, &p.context, &p.expert}) {
    const bool stays = *axis > 1 && !is_kept;
    *axis = stays ? most_ranks : 1;
    is_kept = is_kept || stays;
  }
  if (p.tensor == 1) p.sequence = false;
  p.split.clear();
  p.virtual_stages = 1;
  if (p.schedule == "interleaved") p.schedule = "1f1b";
}

}  // namespace

SmallJob small_job(const TrainConfig& config, int ranks) {
  SmallJob job{.config = config};
  TrainConfig& c = job.config;
  auto& p = c.parallel;
  const int sharing = ranks / ranks_of_sample(p);
  c.train.global_batch_size = 0;
  if (ranks_of_replica(p) <= most_ranks) {
    c.train.batch_size = batch_sizes(config.train, sharing).micro;
  } else {
    job.is_slice = true;
    c.train.batch_size = micro_batch_size(config, sharing);
    divide_less(p);
    constexpr int micro_batches_of_stage = 4;
    p.micro_batches = p.pipeline > 1 ? std::min(p.micro_batches, micro_batches_of_stage * p.pipeline) : 0;
    c.train.batch_size *= std::max(p.micro_batches, 1);
  }
  const int fewest = ranks_of_replica(p);
  job.ranks = std::max(fewest, std::min(ranks, most_ranks) / fewest * fewest);
  if (p.sharded.shard_group > 0 && (job.ranks / ranks_of_model(p)) % p.sharded.shard_group != 0)
    p.sharded.shard_group = 0;
  return job;
}

}  // namespace ddprun::trainer
