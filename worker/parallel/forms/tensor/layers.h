#pragma once

#include "worker/nn/layers/linear.h"
#include "worker/nn/layers/mixture_of_experts.h"
#include "worker/parallel/forms/tensor/collectives.h"
#include "worker/parallel/forms/tensor/plan.h"

// Layers of which each rank of a group has a part (Shoeybi et al., "Megatron-LM", 2019). Each replaces a layer of a
// whole model (nn::Module::set_substitute), whose parameters are this rank's part by then: see
// TensorParallel.
//
// Ownership: the layer that they replace, and the group, outlive them. Threads: one at a time for a group;
// forward and backward passes are collective. Errors: those of the group.
namespace ddprun {

// A Linear or a Conv1D of which each rank has a part, with its buffers if it has some.
class ShardedLinear : public nn::Module {
 protected:
  ShardedLinear(nn::WeightedLayer& layer, CountedGroup& group, Unsharded unsharded);

  nn::WeightedLayer& layer_;
  CountedGroup& group_;
  const Unsharded unsharded_;
};

// Each rank has some of the outputs: the input is whole at each rank, and so is its gradient; the result is this rank's
// part.
class ColumnParallelLinear : public ShardedLinear {
 public:
  ColumnParallelLinear(nn::WeightedLayer& layer, CountedGroup& group, Unsharded unsharded = Unsharded::whole)
      : ShardedLinear(layer, group, unsharded) {}

 private:
  Variable forward(const Variable& input) override;
};

// Each rank has some of the inputs, as a ColumnParallelLinear returns them, and the whole bias: the result is whole at
// each rank. A layer that rounds its inputs and weight rounds as the whole one.
class RowParallelLinear : public ShardedLinear {
 public:
  RowParallelLinear(nn::WeightedLayer& layer, CountedGroup& group, Unsharded unsharded = Unsharded::whole);

 private:
  Variable forward(const Variable& input) override;
};

// Each rank has the rows of some indices; indices and result are whole at each rank.
class VocabularyParallelEmbedding : public nn::Module {
 public:
  VocabularyParallelEmbedding(const nn::Module& embedding, CountedGroup& group, Unsharded unsharded = Unsharded::whole);

 private:
  Variable forward(const Variable& indices) override;

  Variable weight_;  // (this rank's entries, width)
  CountedGroup& group_;
  const Unsharded unsharded_;
};

// An output layer by the weight of such an embedding: the result is this rank's part of the scores, for
// vocabulary_parallel_cross_entropy().
class VocabularyParallelHead : public nn::Module {
 public:
  VocabularyParallelHead(const nn::Module& head, CountedGroup& group, Unsharded unsharded = Unsharded::whole);

 private:
  Variable forward(const Variable& input) override;

  Variable weight_;
  CountedGroup& group_;
  const Unsharded unsharded_;
};

// The slices of a mixture's experts: each rank has some of the features between their two layers.
class SlicesOfExperts final : public nn::ExpertSlices {
 public:
  explicit SlicesOfExperts(CountedGroup& group, Unsharded unsharded = Unsharded::whole)
      : group_(group), unsharded_(unsharded) {}

 private:
  Variable whole(const Variable& input) override;
  Variable own(const Variable& result) override;
  Variable enter(const Variable& rows) override { return copy_to_group(rows, group_); }
  Variable leave(const Variable& results) override { return reduce_from_group(results, group_); }

  CountedGroup& group_;
  const Unsharded unsharded_;
};

}  // namespace ddprun
