#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/optim/tensor_parts.h"
#include "worker/parallel/sharding/parameter_placements.h"
#include "worker/parallel/sharding/redistribution_plan.h"
#include "worker/parallel/sharding/sharded_sum.h"

namespace ddprun::trainer {

// Returns whether each rank of its stage has the whole tensor. Pure.
bool is_whole(const sharding::Placement& placement);

// Returns the same tensors, each whole at the one of so many ranks that has fewest elements of those before it. Pure.
std::vector<sharding::PlacedTensor> at_owners(const std::vector<sharding::PlacedTensor>& tensors, int ranks);

// The parts of parameters that ranks update, for optimizers that need to know of whole tensors. A matrix is transformed
// at its owner.
//
// Ownership: the groups outlive it. Threads and errors: those of TensorParts and of the groups.
class UpdateParts final : public optim::TensorParts {
 public:
  // axes: those on which tensors may be sharded (axes_of_updates()). stages: the ranks that have the stages of the same
  // model; null if there is one stage.
  UpdateParts(sharding::ParameterPlacements placements, std::vector<sharding::AxisGroup> axes, ProcessGroup& all,
              ProcessGroup* stages);

  Shape whole_shape(const std::string& parameter) const override;
  void add_up(const std::vector<std::string>& parameters, std::span<double> numbers) override;
  void transform(std::size_t group, const sharding::NamedTensors& parts,
                 const std::function<void(Tensor& whole)>& function) override;

 private:
  // Tensors that are sharded, in both placements, and the plans for the ways there and back.
  struct Exchange {
    std::vector<sharding::PlacedTensor> parts, whole = {};
    sharding::RedistributionPlan to_whole = {}, to_parts = {};
  };
  const Exchange& exchange_of(std::size_t group, const sharding::NamedTensors& parts);

  const sharding::ParameterPlacements placements_;
  const std::vector<sharding::AxisGroup> axes_;
  ProcessGroup& all_;
  ProcessGroup* const stages_;
  std::map<std::size_t, Exchange> exchanges_;  // by parameter group
};

}  // namespace ddprun::trainer
