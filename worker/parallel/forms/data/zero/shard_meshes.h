#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "worker/comm/process_group.h"
#include "worker/parallel/forms/data/zero/bucket_ranks.h"
#include "worker/parallel/mesh/device_mesh.h"

namespace ddprun {

// The ranks of data parallelism as shard groups, which are replicas of each other: those among which most parameters of
// a model are sharded, and the fewer ones for parameters of which ranks have slices, such as experts.
//
// Ownership: the groups given outlive this object, which outlives the users of its own.
// Threads: the constructor is collective over the group. Errors: those of DeviceMesh and of the group.
class ShardMeshes {
 public:
  // shard_group: the ranks of a shard group, which have all slices; 0: all of the group. replicas: the ranks that have
  // the same slices; null if there are none.
  ShardMeshes(ProcessGroup& group, int shard_group, ProcessGroup* replicas);

  // The ranks that have the same values of parameters, and those that shard and average a bucket of them.
  ProcessGroup& all(bool sliced = false) const { return sliced ? of_slices_->all() : all_.all(); }
  BucketRanks ranks(bool sliced) const;
  // The mesh, of the axes "replicate" and "shard", for what is not sliced.
  const DeviceMesh& mesh() const { return all_; }
  // The sum of ProcessGroup::bytes_sent() of the groups that this object has formed.
  std::uint64_t bytes_sent() const;

 private:
  const std::unique_ptr<ProcessGroup> own_group_;
  const DeviceMesh all_;
  std::optional<DeviceMesh> of_slices_;
};

}  // namespace ddprun
