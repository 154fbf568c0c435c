#pragma once

#include <string>
#include <vector>

#include "worker/nn/layers/mixture_of_experts.h"
#include "worker/parallel/forms/form.h"
#include "worker/parallel/sharding/dimension_shards.h"

namespace ddprun {

// Expert parallelism: the ranks of a group shard the experts of each mixture of experts, and send each other the
// tokens of their samples (GShard: Lepikhin et al., 2020; DeepSpeed-MoE). Every rank has samples of its own, and makes
// as many passes: one without samples passes any that count for nothing (nn::LossFactorScope).
//
//   DeviceMesh mesh(world->group(), {{"data", mesh_rest}, {"expert", 2}});
//   ExpertParallel experts(model, mesh.group("expert"), mesh.all());
//   ExpertDataParallel ddp(model, *experts.shards(), mesh.group("data"), mesh.all());
//
// Training goes on as with DistributedDataParallel.
//
// The constructor takes a whole model: the ranks of the group get its rank 0's parameters and buffers, and each keeps
// its shard of the experts, (experts / ranks, ...) of each parameter. Optimizers are made afterwards. The
// load-balancing loss is that of the tokens of all ranks.
//
// Ownership: model and groups outlive this object; the model is of no use after it.
// Threads: one at a time; the constructor is collective over the group, passes through the model over all ranks.
// Errors: the constructor throws Errc::usage for a model without experts or a number of experts that is no
//   multiple of the ranks, before it changes the model, and Errc::mismatch for ranks with different models.
class ExpertParallel final : public Form, private nn::ExpertExchange {
 public:
  // routing: all ranks with tokens of their own.
  ExpertParallel(nn::Module& model, ProcessGroup& group, ProcessGroup& routing);
  ~ExpertParallel() override;
  ExpertParallel(const ExpertParallel&) = delete;
  ExpertParallel& operator=(const ExpertParallel&) = delete;

  // The parameters that the ranks shard: those of experts.
  const sharding::DimensionShards* shards() const override { return &shards_; }
  bool needs_equal_passes() const override { return true; }
  const CountedGroup& group() const override { return group_; }

 private:
  // received: the result of exchange_counts(). sums: those that run() returns.
  struct Exchanged {
    nn::ExpertCounts received, sums;
  };
  Exchanged exchange(const nn::ExpertCounts& counts, const nn::ExpertCounts& numbers);
  Results run(const Variable& rows, const nn::ExpertCounts& counts, const nn::ExpertCounts& numbers,
              const Compute& compute) override;

  CountedGroup group_;
  ProcessGroup& routing_;
  const std::vector<std::int64_t> routing_ranks_;  // by rank of the group
  sharding::DimensionShards shards_;
  std::vector<nn::MixtureOfExperts*> layers_;  // in the order of the model
};

// The mixtures of experts of a model, in its order.
std::vector<nn::MixtureOfExperts*> mixtures_of_experts(nn::Module& model);

}  // namespace ddprun
