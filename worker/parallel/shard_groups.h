#pragma once

#include <memory>

#include "ddprun/worker/comm/process_group.h"

namespace ddprun {

// The two dimensions of a hybrid division: a model is divided among the ranks of a shard group, which are neighbours,
// and gradients are averaged over the ranks that have the same part in all shard groups, the replicas.
//
// Ownership: all outlives this object, and so does whoever uses its groups.
class ShardGroups {
 public:
  // shard_size: ranks of a shard group; 0: all of them. Collective. Throws Errc::usage for a size that does not divide
  // the number of ranks.
  ShardGroups(ProcessGroup& all, int shard_size);

  ProcessGroup& all() const { return all_; }
  ProcessGroup& shards() const { return own_shards_ ? *own_shards_ : all_; }
  ProcessGroup* replicas() const { return replicas_.get(); }  // null: there is one shard group
  // Whether rank 0 is in this rank's shard group.
  bool in_first() const { return all_.rank() < shards().size(); }

 private:
  ProcessGroup& all_;
  std::unique_ptr<ProcessGroup> own_shards_, replicas_;
};

}  // namespace ddprun
