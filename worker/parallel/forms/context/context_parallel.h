#pragma once

#include <cstdint>
#include <vector>

#include "worker/nn/layers/attention.h"
#include "worker/nn/layers/dropout.h"
#include "worker/nn/layers/position_embedding.h"
#include "worker/parallel/forms/form.h"

namespace ddprun {

// Context parallelism: the ranks of a group divide the positions of each sample, for samples that are too long for one
// rank. A transformer computes each position by itself but for attention, which becomes ring_attention().
//
//   DeviceMesh mesh(world->group(), {{"data", mesh_rest}, {"context", 2}});
//   ContextParallel context(model, mesh.group("context"));
//   DistributedDataParallel ddp(model, mesh.all());   // averages over samples and positions
//   const Variable scores = ddp.forward(Variable(context.own_positions(tokens)));
//
// All ranks of a group have the same samples. Parameters are whole at each rank; the gradient that each computes is of
// its positions, so the group whose gradients are averaged includes all ranks.
//
// The model is one with a PositionEmbedding, and whose attention is CausalSelfAttention: GPT. In a RandomScope dropout
// draws the numbers of whole samples; where it drops weights of attention that is gathered_attention(). The destructor
// gives the model its whole sequences back. Tensor parallelism, if any, is applied afterwards, and destroyed before.
//
// Ownership: model and group outlive this object.
// Threads: one at a time; passes through the model are collective.
// Errors: the constructor throws Errc::usage for a model without such modules, before it changes it; a pass throws
// Errc::mismatch for more positions than the model has.
class ContextParallel final : public Form {
 public:
  ContextParallel(nn::Module& model, ProcessGroup& group);
  ~ContextParallel() override;
  ContextParallel(const ContextParallel&) = delete;
  ContextParallel& operator=(const ContextParallel&) = delete;

  bool divides_positions() const override { return true; }
  // Takes (batch, time, ...); returns this rank's part, (batch, time / ranks, ...), in the order of the model.
  Tensor own_positions(const Tensor& all) const override;

  const CountedGroup& group() const override { return group_; }

 private:
  CountedGroup group_;
  std::vector<nn::CausalSelfAttention*> attentions_;
  std::vector<nn::Dropout*> dropouts_;
  nn::PositionEmbedding& positions_;
};

}  // namespace ddprun
