#pragma once

#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/sharding/parameter_placements.h"
#include "worker/parallel/sharding/redistribution_plan.h"

namespace ddprun::sharding {

// Tensors of which each rank has the part that their placements say: makes them whole at rank 0, for a checkpoint,
// shards them again, and moves them to other placements.
//
// Ownership: the group, of all ranks of the placements' mesh, outlives this object, which holds handles on the tensors.
// Threads: one at a time; gather(), scatter() and move_to() are collective. Errors: those of redistribute().
class ShardedState {
 public:
  // tensors: the same at all ranks, in the same order. own: this rank's parts under their names; what is sharded is in
  // memory of the host.
  ShardedState(std::vector<PlacedTensor> tensors, const NamedTensors& own, ProcessGroup& all);

  const std::vector<PlacedTensor>& tensors() const { return tensors_; }
  // Returns this rank's part of each tensor; undefined where there is none.
  const std::vector<Tensor>& own() const { return own_; }

  // Returns at rank 0 all tensors whole, in own memory or in that of a part that is whole; none at other ranks.
  NamedTensors gather() const;
  // Returns tensors like those of gather(), of any value: a checkpoint is read into them.
  NamedTensors whole_like() const;
  // Copies rank 0's whole tensors, in the order of whole_like(), to the parts of all ranks.
  void scatter(const NamedTensors& whole) const;
  // Copies the values to the parts of another state, of the same tensors at the same ranks.
  void move_to(const ShardedState& other) const { move_to(other, plan_move(other)); }
  // Do the same in two steps: states with the same placements have the same plan.
  RedistributionPlan plan_move(const ShardedState& other) const;
  void move_to(const ShardedState& other, RedistributionPlan plan) const;

 private:
  bool is_whole_at_first(std::size_t tensor) const;
  bool is_whole_at_all(std::size_t tensor) const;
  Redistribution without_layouts(const std::vector<std::size_t>& tensors) const;
  StateLayout layout_of(const std::vector<std::size_t>& tensors) const;
  std::vector<std::size_t> places_in(const ShardedState& other) const;
  Redistribution redistribution_to(const ShardedState& other) const;
  void move(const Redistribution& redistribution, const std::vector<Tensor>& from, const std::vector<Tensor>& to) const;
  void move(const Redistribution& redistribution, RedistributionPlan plan, const std::vector<Tensor>& from,
            const std::vector<Tensor>& to) const;

  std::vector<PlacedTensor> tensors_;
  std::vector<Tensor> own_;  // this rank's part by tensor; undefined if it does not exist
  ProcessGroup& all_;
};

}  // namespace ddprun::sharding
