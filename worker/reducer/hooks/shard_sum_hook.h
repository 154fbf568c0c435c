#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/bucket_stages.h"
#include "worker/reducer/comm_hook.h"
#include "worker/reducer/shard_gradients.h"
#include "worker/reducer/shard_tree.h"

namespace ddprun {

// Sums the gradients of the shards of a batch in an order that does not depend on the ranks (shard_tree.h). Each rank
// gets its part of a bucket from all ranks, once for each of their subtrees (all_to_all), adds these along the tree,
// and gives the sum to all (allgather): as many bytes as an allreduce where each rank's shards make up one subtree.
//
// A step: begin_step(); then for each shard that it returns begin_shard(), add_loss(), and a pass that is not reduced
// with keep_pass(), or for the last one a reduced pass. A rank without shards makes a reduced pass without gradients.
// Averages it does not make: a bucket gets the sum.
//
// Ownership: the gradients of shards outlive it, and may be given to the hook of the next group. Otherwise as of any
//   CommHook.
// Threads: as of any CommHook.
// Errors: Errc::unsupported for gradients other than float32 of the host.
class ShardSumHook final : public CommHook {
 public:
  ShardSumHook(int shards, ShardGradients& gradients, ProcessGroup& group);

  // filled: the number of shards that have samples. Returns the shards that this rank computes: in the first step of
  // the group only those of which no rank has gradients of an earlier attempt at this step. Collective.
  std::vector<int> begin_step(std::int64_t step, int filled);
  void begin_shard(int shard) { gradients_.begin_shard(shard); }
  void add_loss(double loss) { gradients_.add_loss(loss); }
  // Takes the shard's gradients out of the buckets, whose contents do not matter afterwards.
  void keep_pass();
  // Returns the sum of the losses of the shards whose gradients this rank adds.
  double loss_sum() const { return gradients_.loss_sum(); }

  void prepare(std::span<const GradBucket> buckets) override;
  WorkPtr start(const GradBucket& bucket) override;
  void cancel() override { stages_.cancel(); }

 private:
  struct SumPlan {
    Span bucket;
    Counts parts;               // by rank: the elements of its part
    RegisteredBuffer sent;      // by rank: its part of each of this rank's sums
    RegisteredBuffer received;  // this rank's part of all ranks' sums
  };

  std::vector<std::vector<Subtree>> held_by_ranks();
  WorkPtr exchange(std::size_t bucket);
  WorkPtr gather(SumPlan& plan);
  float* sum_received(const SumPlan& plan) const;

  const int shards_;
  ShardGradients& gradients_;
  ProcessGroup& group_;
  bool is_first_step_ = true;
  bool adds_shard_ = false;                     // whether the reduced pass is one of a shard
  std::vector<std::vector<Subtree>> subtrees_;  // by rank: those of its sums
  std::vector<SumPlan> plans_;                  // by bucket
  BucketStages stages_;
};

}  // namespace ddprun
