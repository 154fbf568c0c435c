#include "worker/trainer/session/step_batches.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/data/distributed_sampler.h"
#include "worker/reducer/shard_tree.h"
#include "worker/trainer/session/rank_times.h"

namespace ddprun::trainer {

StepBatches::StepBatches(const TrainConfig& config, const Datasets& datasets, data::EpochPlan plan, const Place& place)
    : config_(config), datasets_(datasets), plan_(std::move(plan)), place_(place) {
  if (place.balances && plan_.step_samples >= place.ranks) balancer_.emplace(place.ranks, plan_.step_samples);
}

void StepBatches::open(const checkpoint::RunState& run, std::optional<std::vector<int>> shards) {
  const bool are_others = shards && shards_of_step_ && *shards != *shards_of_step_;
  shards_of_step_ = std::move(shards);
  if (are_others) close();
  if (loader_) return;
  const auto order = data::epoch_order(plan_.size, run.seed, run.epoch, config_.data.shuffle);
  data::LoaderOptions options = config_.data.loader;
  options.epoch = run.epoch;
  options.augmentation = datasets_.augmentation ? &*datasets_.augmentation : nullptr;
  options.mixup = datasets_.mixup ? &*datasets_.mixup : nullptr;
  options.seed = run.seed;
  loader_.emplace(*datasets_.train,
                  batches_of_parts(plan_, order, run.samples, parts_of(place_.rank), samples_of_batch(place_.rank),
                                   shards_of_step_),
                  options);
}

std::vector<int> StepBatches::parts_of(int rank) const {
  const auto range = shards_of_rank(plan_.parts, rank, place_.ranks);
  std::vector<int> parts(static_cast<std::size_t>(range.count()));
  std::iota(parts.begin(), parts.end(), range.begin);
  return parts;
}

std::int64_t StepBatches::count(std::int64_t samples, const std::vector<int>& parts, int rank) const {
  std::int64_t batches = 0;
  for (const int part : parts) batches += divide_up(plan_.share(samples, part), samples_of_batch(rank));
  return batches;
}

std::int64_t StepBatches::count(std::int64_t samples, int rank) const {
  return count(samples, parts_of(rank), rank);
}

std::int64_t StepBatches::own_count(std::int64_t samples) const {
  return count(samples, shards_of_step_ ? *shards_of_step_ : parts_of(place_.rank), place_.rank);
}

std::int64_t StepBatches::largest_count(std::int64_t samples, int ranks) const {
  std::int64_t most = 0;
  for (int r = 0; r < ranks; ++r) most = std::max(most, count(samples, r));
  return most;
}

void StepBatches::require_equal_counts(std::int64_t samples) const {
  for (int r = 0; r < place_.ranks; ++r) {
    if (count(samples, r) == count(samples, 0)) continue;
    throw make_error(Errc::usage,
                     "parallel.sync_batch_norm = true: in a step of {} samples rank 0 has {} micro-batches and rank {} "
                     "{}; they need as many each, for instance with data.drop_last = true",
                     samples, count(samples, 0), r, count(samples, r));
  }
}

// Returns the samples of a micro-batch: a larger share makes larger micro-batches, not more of them.
std::int64_t StepBatches::samples_of_batch(int rank) const {
  if (plan_.shares.empty()) return place_.micro_batch;
  return divide_up(plan_.shares[static_cast<std::size_t>(rank)], config_.train.accumulate);
}

std::string StepBatches::balance(const std::vector<profiler::StepTimes>& ranks) {
  if (!balancer_) return "";
  // Neighbours that have the same samples are as slow as the slowest of them.
  std::vector<double> seconds(static_cast<std::size_t>(place_.ranks));
  const std::size_t sharing = ranks.size() / seconds.size();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    double& slowest = seconds[r / sharing];
    slowest = std::max(slowest, (ranks[r].forward + ranks[r].backward).count() / RankTimes::window);
  }
  const auto decision = balancer_->observe(seconds);
  if (!decision) return "";
  plan_.shares = decision->shares;
  close();  // the loader is made again with the new shares
  return decision->reason;
}

}  // namespace ddprun::trainer
