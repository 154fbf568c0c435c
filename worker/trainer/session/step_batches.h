#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/run_state.h"
#include "worker/data/batch.h"
#include "worker/data/epoch_plan.h"
#include "worker/data/loader.h"
#include "worker/profiler/step_times.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/load_balancer.h"
#include "worker/trainer/state/datasets.h"

namespace ddprun::trainer {

// The micro-batches of a rank's steps, and their number at every rank. The parts of the plan are divided among the
// ranks in order: one for each, or the shards of train.shards.
//
// Ownership: config and datasets outlive this object. Threads: one at a time.
class StepBatches {
 public:
  struct Place {
    int rank = 0;                  // its number among the ranks that have samples of their own
    int ranks = 1;                 // the number of these
    std::int64_t micro_batch = 1;  // the most samples
    bool balances = false;         // true if ranks may get shares by their speed
  };
  StepBatches(const TrainConfig& config, const Datasets& datasets, data::EpochPlan plan, const Place& place);

  // Opens the batches of the rest of the epoch; does nothing if they are open. shards: those of the next step that this
  // rank computes, with train.shards.
  void open(const checkpoint::RunState& run, std::optional<std::vector<int>> shards = {});
  // To be called when the epoch is finished.
  void close() { loader_.reset(); }
  // REQUIRES: open. Returns none if the epoch has no more.
  std::optional<data::Batch> next() { return loader_->next(); }
  // Returns a batch of one sample for a pass that counts for nothing, at a rank that has fewer batches than others.
  data::Batch any_sample() const { return data::make_batch(*datasets_.train, {0}); }

  // The number of batches in a step of so many samples, at one rank and at the one among so many that has the most.
  std::int64_t count(std::int64_t samples, int rank) const;
  std::int64_t own_count(std::int64_t samples) const;  // in the step for which open() was called
  std::int64_t largest_count(std::int64_t samples, int ranks) const;
  // For batch norm over all ranks: a rank with fewer misses exchanges of the others' statistics. Throws Errc::usage.
  void require_equal_counts(std::int64_t samples) const;

  // Decides anew on the ranks' shares, all ranks alike, from the times of some steps of each rank. Returns why they
  // change; empty if they do not.
  std::string balance(const std::vector<profiler::StepTimes>& ranks);

 private:
  std::vector<int> parts_of(int rank) const;
  std::int64_t count(std::int64_t samples, const std::vector<int>& parts, int rank) const;
  std::int64_t samples_of_batch(int rank) const;

  const TrainConfig& config_;
  const Datasets& datasets_;
  data::EpochPlan plan_;
  const Place place_;
  std::optional<LoadBalancer> balancer_;
  std::optional<data::Loader> loader_;  // none between two epochs
  std::optional<std::vector<int>> shards_of_step_;
};

}  // namespace ddprun::trainer
