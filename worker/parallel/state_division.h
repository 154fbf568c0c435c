#pragma once

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/optim/optimizer.h"

namespace ddprun {

// How named tensors, of a model or of an optimizer, are divided among the ranks of a group: what a checkpoint needs,
// which has them whole. Tensors of an optimizer are named after their parameter, "fc1.weight.exp_avg". Rank 0 gives and
// gets the whole.
//
// Threads: one at a time; all methods are collective. Errors: those of the group.
class StateDivision {
 public:
  virtual ~StateDivision() = default;

  // own: this rank's parts. At rank 0 all of them whole, in memory of their own or in that of own where that is whole;
  // of no use at the others.
  virtual optim::NamedTensors gather(const optim::NamedTensors& own) const = 0;
  // Tensors as gather() gives them, of any value: what a checkpoint is read into.
  virtual optim::NamedTensors whole_like(const optim::NamedTensors& own) const = 0;
  // Rank 0's whole tensors, which whole_like() made, into the parts of all ranks.
  virtual void scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const = 0;
};

// Every rank has everything.
//
// Ownership: the group outlives this object.
class Replicas final : public StateDivision {
 public:
  explicit Replicas(ProcessGroup& group) : group_(group) {}
  optim::NamedTensors gather(const optim::NamedTensors& own) const override { return own; }
  optim::NamedTensors whole_like(const optim::NamedTensors& own) const override { return own; }
  void scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const override;

 private:
  ProcessGroup& group_;
};

}  // namespace ddprun
