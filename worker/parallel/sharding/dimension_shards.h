#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/parallel/sharding/placement.h"
#include "worker/tensor/tensor.h"

namespace ddprun::sharding {

// Parameters of which each rank of an axis has a shard of one dimension, such as the columns of a weight, or some of
// the experts. The others are replicated.
//
// Ownership: the group outlives this object. Threads: one at a time. Errors: those of the group.
class DimensionShards {
 public:
  // group: the ranks of the axis.
  DimensionShards(std::string axis, ProcessGroup& group) : axis_(std::move(axis)), group_(group) {}

  // Replaces a replicated parameter of a model by this rank's shard of a dimension, in place, so that all modules that
  // have it see it. pieces: Shard::pieces.
  // REQUIRES: the dimension is a multiple of pieces * ranks.
  void shard(nn::Module& model, const std::string& parameter, std::size_t dimension, std::int64_t pieces = 1);

  const std::string& axis() const { return axis_; }
  ProcessGroup& group() const { return group_; }
  // Returns the parameters that are sharded.
  std::vector<std::string> names() const;
  bool contains(const std::string& parameter) const { return shards_.contains(parameter); }
  // Returns null if the parameter is replicated.
  const Shard* find(const std::string& parameter) const {
    const auto found = shards_.find(parameter);
    return found == shards_.end() ? nullptr : &found->second;
  }
  // Returns a parameter's whole value, at every rank. Collective for those that are sharded.
  Tensor whole(const std::string& parameter, const Tensor& local) const;

 private:
  const std::string axis_;
  ProcessGroup& group_;
  std::map<std::string, Shard> shards_;  // by parameter
};

// Pure functions of an even shard, without padding. REQUIRES: the dimension is a multiple of pieces * ranks.
// Returns a copy of a rank's shard.
Tensor local_shard(const Tensor& whole, const Shard& shard, int rank, int ranks);
// The inverse of local_shard(): writes a rank's shard, contiguous, into the whole, contiguous.
void put_local_shard(const Tensor& local, const Shard& shard, int rank, int ranks, Tensor& whole);
// Returns the shape of a whole tensor whose shard has this shape.
Shape whole_shape(const Shape& local, const Shard& shard, int ranks);

}  // namespace ddprun::sharding
