#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/parallel/divided_parameters.h"
#include "ddprun/worker/parallel/sharding/placement.h"
#include "ddprun/worker/parallel/sliced_tensors.h"
#include "ddprun/worker/tensor/tensor.h"

namespace ddprun::sharding {

// The tensors of a model ("fc1.weight"), or of an optimizer, which names its tensors after their parameter
// ("fc1.weight.exp_avg").
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// How the parameters of a model lie on a mesh, and with them what is kept of each: tensors of a parameter's shape lie
// as it does, and scalars, such as counters, are replicated where it exists.
//
// Threads: read by any number.
class ParameterPlacements {
 public:
  // spec: the whole parameter. Throws as PlacedTensor.
  void add(TensorSpec spec, Placement placement);

  // Throws Errc::internal for a parameter that was not added.
  const PlacedTensor& of_parameter(const std::string& name) const;
  PlacedTensor of_tensor(const std::string& name, DType dtype, bool is_scalar) const;

 private:
  std::map<std::string, PlacedTensor> parameters_;
};

// Where the parameters of buckets lie that are divided among the ranks of these axes.
std::map<std::string, FlatShard> flat_shards(const std::vector<std::pair<std::string, Variable>>& parameters,
                                             const std::vector<Bucket>& buckets, const AxisNames& axes);

// The placements of parameters that all ranks of a group divide, on a mesh of these ranks.
ParameterPlacements placements_of(const DividedParameters& divided, const ProcessGroup& group);

// Slices as SlicedTensors has them.
Shard shard_on(const std::string& axis, const Slicing& slicing);

// The placements of a model of whose parameters and buffers the ranks of a group have slices, on a mesh of these ranks.
ParameterPlacements placements_of(const SlicedTensors& slices, const NamedTensors& model);

// The tensors of all ranks, given this rank's parts: those that it has, and those of other stages, in the same order at
// all ranks. An optimizer may keep different tensors of different parameters (Muon of matrices and of others), so each
// stage says which ones it has. stages: the ranks that differ on the axis "pipeline" alone; null: there is one stage.
// Collective over them.
std::vector<PlacedTensor> placed_tensors(const ParameterPlacements& placements, const NamedTensors& own,
                                         ProcessGroup* stages);

}  // namespace ddprun::sharding
