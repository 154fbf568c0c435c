#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/reducer/bucket_stages.h"
#include "ddprun/worker/reducer/comm_hook.h"
#include "ddprun/worker/reducer/shard_tree.h"

namespace ddprun {

// Sums the gradients of the shards of a batch in an order that does not depend on the ranks (shard_tree.h). Each rank
// gets its part of a bucket from all ranks, once for each of their subtrees (all_to_all), adds these along the tree,
// and gives the sum to all (allgather): as many bytes as an allreduce where each rank's shards make up one subtree.
//
// A step: begin_step(); a pass that is not reduced, and keep_pass(), for each of this rank's shards but the last; a
// reduced pass for that one, or for none. Averages it does not make: a bucket gets the sum.
//
// Ownership and threads: as of any CommHook. Errors: Errc::unsupported for gradients other than float32 of the host.
class ShardSumHook final : public CommHook {
 public:
  ShardSumHook(int shards, ProcessGroup& group);

  // filled: the number of shards that have samples.
  void begin_step(int filled);
  // Takes the gradients of one of this rank's shards out of the buckets, whose contents do not matter afterwards.
  void keep_pass();

  void prepare(std::span<const GradBucket> buckets) override;
  WorkPtr start(const GradBucket& bucket) override;
  void cancel() override { stages_.cancel(); }

 private:
  struct Plan {
    Span bucket;
    Counts parts;               // by rank: the elements of its part
    ShardSums own;              // this rank's sums in the step
    RegisteredBuffer sent;      // by rank: its part of each of them
    RegisteredBuffer received;  // this rank's part of all ranks' sums
  };

  void add_shard(Plan& plan) const;
  WorkPtr exchange(Plan& plan);
  WorkPtr gather(Plan& plan);
  std::vector<Subtree> subtrees(int rank) const;

  const int shards_;
  ProcessGroup& group_;
  int filled_ = 0;
  ShardRange own_;  // those of this rank that are not added yet
  std::vector<Plan> plans_;
  BucketStages stages_;
};

}  // namespace ddprun
