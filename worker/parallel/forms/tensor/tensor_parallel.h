#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "worker/optim/parameter_group.h"
#include "worker/parallel/forms/form.h"
#include "worker/parallel/forms/tensor/collectives.h"
#include "worker/parallel/forms/tensor/layers.h"
#include "worker/parallel/forms/tensor/plan.h"
#include "worker/parallel/sharding/dimension_shards.h"

namespace ddprun {

// Tensor parallelism: the ranks of a group compute a model's layers together, each with a part of their weights
// (Shoeybi et al., "Megatron-LM", 2019; PyTorch's parallelize_module). All of them see the same samples.
//
//   DeviceMesh mesh(world->group(), {{"data", mesh_rest}, {"tensor", 2}});
//   TensorParallel tensor(model, tensor_plan("gpt", model), mesh.group("tensor"));
//   DistributedDataParallel ddp(model, mesh.group("data"));   // then as always
//
// The constructor takes a whole model: all ranks get rank 0's parameters and buffers, and each keeps its part. Names
// stay. Parameters that are not sharded stay equal at all ranks, as long as their updates depend only on gradients,
// which are equal. Optimizers, and gradient synchronization over other dimensions, are made afterwards.
//
// Ownership: model and group outlive this object; the model is of no use after it.
// Threads: one at a time; the constructor is collective, and so are passes through the model.
// Errors: the constructor throws Errc::usage naming the module and the size that does not divide, before it changes the
//   model, and Errc::mismatch for ranks with different models.
class TensorParallel final : public Form {
 public:
  TensorParallel(nn::Module& model, const TensorPlan& plan, ProcessGroup& group);

  // To be called with Unsharded::positions after the passes of a step, before their gradients are used: the gradients
  // of what is not sharded become those of all positions. parameters: the model's, or this rank's parts of them under
  // their names. Collective.
  void complete_gradients(const optim::NamedParameters& parameters) override;

  // The parameters that the ranks shard, for checkpoints.
  const sharding::DimensionShards* shards() const override { return &shards_; }
  // Those of slices, and those of each rank's positions.
  std::vector<std::string> own_gradients() const override;
  // Returns whether the model's results are scores of which each rank has some classes.
  bool shards_scores() const { return shards_scores_; }
  // vocabulary_parallel_cross_entropy() where ranks have some of the classes.
  CrossEntropy cross_entropy(std::int64_t ignored) override;
  CountedGroup& group() { return group_; }
  const CountedGroup& group() const override { return group_; }

 private:
  void apply(nn::Module& model, const TensorRule& rule);
  void declare_placements(const nn::Module& model) const;

  CountedGroup group_;
  sharding::DimensionShards shards_;
  Unsharded unsharded_ = Unsharded::whole;
  std::set<std::string> partial_;  // parameters whose gradients are of this rank's positions
  bool shards_scores_ = false;
  std::unique_ptr<SlicesOfExperts> expert_slices_;  // set for a model with experts
};

}  // namespace ddprun
