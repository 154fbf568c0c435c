#pragma once

#include <map>
#include <string>

#include "ddprun/worker/parallel/state_division.h"
#include "ddprun/worker/parallel/tensor/plan.h"
#include "ddprun/worker/parallel/tensor/slicing.h"
#include "ddprun/worker/parallel/tensor/tensor_group.h"

namespace ddprun {

// Tensor parallelism: the ranks of a group compute a model's layers together, each with a part of their weights
// (Shoeybi et al., "Megatron-LM", 2019; PyTorch's parallelize_module). All of them see the same samples.
//
//   DeviceMesh mesh(world->group(), {{"data", mesh_rest}, {"tensor", 2}});
//   TensorParallel tensor(model, tensor_plan("gpt", model), mesh.group("tensor"));
//   DistributedDataParallel ddp(model, mesh.group("data"));   // then as always
//
// The constructor takes a whole model: all ranks get rank 0's parameters and buffers, and each keeps its part. Names
// stay. Parameters that are not divided stay equal at all ranks, as long as their updates depend on gradients alone,
// which are equal. Optimizers, and gradient synchronisation over other dimensions, are made afterwards.
//
// As a StateDivision: of the model's parameters and buffers, and of an optimizer's state of them.
//
// Ownership: model and group outlive this object; the model is of no use after it.
// Threads: one at a time; the constructor is collective, and so are passes through the model.
// Errors: the constructor throws Errc::usage naming the module and the size that does not divide, before it changes the
//   model, and Errc::mismatch for ranks with different models.
class TensorParallel final : public StateDivision {
 public:
  TensorParallel(nn::Module& model, const TensorPlan& plan, ProcessGroup& group);

  // With Undivided::positions, after the passes of a step and before their gradients are used: the gradients of what is
  // not divided become those of all positions. Collective.
  void complete_gradients();

  // Whether each rank has a part of this parameter.
  bool divides(const std::string& parameter) const { return slicings_.contains(parameter); }
  // Whether the model's results are scores of which each rank has some classes: see
  // vocabulary_parallel_cross_entropy().
  bool divides_scores() const { return divides_scores_; }
  // A parameter's whole value, at every rank. Collective for those that are divided.
  Tensor whole(const std::string& parameter, const Tensor& own) const;
  TensorGroup& group() { return group_; }
  const TensorGroup& group() const { return group_; }

  optim::NamedTensors gather(const optim::NamedTensors& own) const override;
  optim::NamedTensors whole_like(const optim::NamedTensors& own) const override;
  void scatter(const optim::NamedTensors& whole, const optim::NamedTensors& own) const override;

 private:
  void apply(nn::Module& model, const TensorRule& rule);
  void divide(nn::Module& model, const std::string& parameter, Slicing slicing);
  const Slicing* slicing_of(const std::string& name, const Tensor& tensor) const;

  TensorGroup group_;
  std::map<std::string, Slicing> slicings_;  // by parameter
  Undivided undivided_ = Undivided::whole;
  std::vector<Variable> partial_;  // their gradients are of this rank's positions
  bool divides_scores_ = false;
};

}  // namespace ddprun
