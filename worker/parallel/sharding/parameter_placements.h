#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/sharding/dimension_shards.h"
#include "worker/parallel/sharding/placement.h"
#include "worker/parallel/sharding/sharded_buckets.h"
#include "worker/tensor/tensor.h"

namespace ddprun::sharding {

// The tensors of a model ("fc1.weight"), or of an optimizer, which names its tensors after their parameter
// ("fc1.weight.exp_avg").
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// The placements of a model's parameters on a mesh, and of what is kept for each: tensors of a parameter's shape are
// placed like it, and scalars, such as counters, are replicated where it exists.
//
// Threads: any number may read.
class ParameterPlacements {
 public:
  // spec: the whole parameter. Throws what PlacedTensor throws.
  void add(TensorSpec spec, Placement placement);

  // Throws Errc::internal for a parameter that was not added.
  const PlacedTensor& of_parameter(const std::string& name) const;
  PlacedTensor of_tensor(const std::string& name, DType dtype, bool is_scalar) const;

 private:
  std::map<std::string, PlacedTensor> parameters_;
};

// Returns the places of the parameters of buckets that are sharded among the ranks of these axes.
std::map<std::string, FlatShard> flat_shards(const std::vector<std::pair<std::string, Variable>>& parameters,
                                             const std::vector<Bucket>& buckets, const AxisNames& axes);

// Returns the placements of parameters that all ranks of a group shard, on a mesh of these ranks.
ParameterPlacements placements_of(const ShardedBuckets& sharded, const ProcessGroup& group);

// The shards of dimensions on several axes; each outlives its use.
using ShardsOnAxes = std::vector<const DimensionShards*>;

// Adds this rank's shards to the placement of a tensor, on axes of its mesh. Returns the whole tensor's shape, given
// that of its local part.
Shape add_shards(const ShardsOnAxes& axes, const std::string& tensor, Shape local, Placement& placement);

// Returns the placements of a model of which ranks shard parameters and buffers, on a mesh of these axes alone.
ParameterPlacements placements_of(const ShardsOnAxes& axes, const NamedTensors& model);

// Returns the tensors of all ranks, given this rank's parts: those that it has, and those of other stages, in the same
// order at all ranks. An optimizer may keep different tensors of different parameters (Muon of matrices and of others),
// so each stage says which ones it has. stages: the ranks that differ only on the axis "pipeline"; null if there is one
// stage. Collective over them.
std::vector<PlacedTensor> placed_tensors(const ParameterPlacements& placements, const NamedTensors& own,
                                         ProcessGroup* stages);

}  // namespace ddprun::sharding
