#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/divided_parameters.h"
#include "worker/parallel/sharding/placement.h"
#include "worker/parallel/sliced_tensors.h"
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

// Returns the places of the parameters of buckets that are divided among the ranks of these axes.
std::map<std::string, FlatShard> flat_shards(const std::vector<std::pair<std::string, Variable>>& parameters,
                                             const std::vector<Bucket>& buckets, const AxisNames& axes);

// Returns the placements of parameters that all ranks of a group divide, on a mesh of these ranks.
ParameterPlacements placements_of(const DividedParameters& divided, const ProcessGroup& group);

// Converts a slice of SlicedTensors.
Shard shard_on(const std::string& axis, const Slicing& slicing);

// Tensors that the ranks of an axis slice.
struct SlicesOnAxis {
  std::string axis;
  const SlicedTensors* slices = nullptr;
};

// Adds this rank's slices to the placement of a tensor, on axes of its mesh. Returns the whole tensor's shape, given
// that of its part.
Shape add_shards(const std::vector<SlicesOnAxis>& slices, const std::string& tensor, Shape part, Placement& placement);

// Returns the placements of a model whose parameters and buffers ranks slice, on a mesh of these axes alone.
ParameterPlacements placements_of(const std::vector<SlicesOnAxis>& slices, const NamedTensors& model);

// Returns the tensors of all ranks, given this rank's parts: those that it has, and those of other stages, in the same
// order at all ranks. An optimizer may keep different tensors of different parameters (Muon of matrices and of others),
// so each stage says which ones it has. stages: the ranks that differ only on the axis "pipeline"; null if there is one
// stage. Collective over them.
std::vector<PlacedTensor> placed_tensors(const ParameterPlacements& placements, const NamedTensors& own,
                                         ProcessGroup* stages);

}  // namespace ddprun::sharding
