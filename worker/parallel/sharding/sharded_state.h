#pragma once

#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/parallel/sharding/parameter_placements.h"
#include "ddprun/worker/parallel/sharding/redistribution_plan.h"

namespace ddprun::sharding {

// Tensors of which each rank has the part that their placements say: how they become whole at rank 0, for a checkpoint,
// how they are sharded again, and how they get to other placements.
//
// Ownership: the group, of all ranks of the placements' mesh, outlives this object, which holds handles on the tensors.
// Threads: one at a time; gather(), scatter() and move_to() are collective. Errors: those of redistribute().
class ShardedState {
 public:
  // tensors: the same at all ranks, in the same order. own: this rank's parts under their names; what is sharded is in
  // memory of the host.
  ShardedState(std::vector<PlacedTensor> tensors, const NamedTensors& own, ProcessGroup& all);

  // At rank 0 all tensors whole, in memory of their own or in that of its part where that is whole; none at others.
  NamedTensors gather() const;
  // Tensors as gather() gives them, of any value: what a checkpoint is read into.
  NamedTensors whole_like() const;
  // Rank 0's whole tensors, in the order of whole_like(), into the parts of all ranks.
  void scatter(const NamedTensors& whole) const;
  // The values into the parts of another state, of the same tensors at the same ranks.
  void move_to(const ShardedState& other) const;

 private:
  bool is_whole_at_first(std::size_t tensor) const;
  bool is_whole_at_all(std::size_t tensor) const;
  Redistribution without_layouts(const std::vector<std::size_t>& tensors) const;
  StateLayout layout_of(const std::vector<std::size_t>& tensors) const;
  void move(const Redistribution& redistribution, const std::vector<Tensor>& from, const std::vector<Tensor>& to) const;

  const std::vector<PlacedTensor> tensors_;
  std::vector<Tensor> own_;  // by tensor: this rank's part; undefined where it does not exist
  ProcessGroup& all_;
};

}  // namespace ddprun::sharding
