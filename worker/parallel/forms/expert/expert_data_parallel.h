#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/parallel/sharding/dimension_shards.h"
#include "worker/parallel/sharding/sharded_buckets.h"

namespace ddprun {

// Data parallelism of a model whose experts are sharded: gradients of experts are summed over the ranks that have the
// same experts, those of everything else over all ranks, and both divided by the number of all ranks, each of which has
// samples of its own.
//
// The gradients of everything else have a group of their own where all ranks shard the experts, so that exchanges of
// tokens do not wait for them.
//
// Ownership: model, experts and groups outlive this object; the model's gradients may outlive it.
// Threads: one at a time; the constructor is collective over all. All ranks make equally many passes. Errors: those of
// DistributedDataParallel, and Errc::usage if of a delayed parameter and param_to_hook_all_reduce one is an expert's.
class ExpertDataParallel final : public DataParallelism {
 public:
  // Makes the hook that averages gradients over a group; empty: they are averaged as they are.
  using MakeHook = std::function<std::unique_ptr<CommHook>(ProcessGroup&)>;

  // experts: ExpertParallel::shards(). replicas: the ranks that have the same experts. With options.shard_gradients the
  // updates of experts are sharded among these ranks, and those of everything else among all: see sharded_buckets().
  ExpertDataParallel(nn::Module& model, const sharding::DimensionShards& experts, ProcessGroup& replicas,
                     ProcessGroup& all, const DdpOptions& options = {}, const MakeHook& make_hook = {});

  // The buckets of experts and those of everything else. Pure, like that for DdpOptions.
  static GradientBuckets buckets(const nn::Module& model, const sharding::DimensionShards& experts,
                                 const DdpOptions& options);

  Variable forward(const Variable& input) override;
  void prepare_forward() override;
  // Throws Errc::unsupported: a rank without samples has tokens of others to compute, and makes a pass of any samples
  // that count for nothing.
  void join_pass() override;
  void join_backward() override;
  std::shared_ptr<void> hold_reduction() override;

  const ShardedBuckets* sharded_buckets() const override { return sharded_.buckets.empty() ? nullptr : &sharded_; }
  ProcessGroup& shard_group() const override { return all_; }
  ProcessGroup& shard_group_of_slices() const override { return replicas_; }
  std::uint64_t bytes_sent() const override { return own_group_ ? own_group_->bytes_sent() : 0; }

  void zero_grad() override { others_.zero_grad(); }  // clears the whole model's
  // Those of both hooks.
  std::vector<HookState> hook_state() override;
  void parameters_updated() override;
  void sync_buffers() override { others_.sync_buffers(); }
  // Experts are visited with this rank's values.
  void visit_parameters(const Visitor& visit) override;

  std::chrono::nanoseconds waited() const override { return of_experts_.waited() + others_.waited(); }
  std::chrono::nanoseconds starting() const override { return of_experts_.starting() + others_.starting(); }
  void record_transfers(std::vector<Transfer>* into) override;

 private:
  void shard();

  nn::Module& model_;
  const sharding::DimensionShards& experts_;
  ProcessGroup& replicas_;
  ProcessGroup& all_;
  const std::unique_ptr<ProcessGroup> own_group_;  // a group of all ranks; null where experts have another group
  DistributedDataParallel of_experts_;
  DistributedDataParallel others_;
  ShardedBuckets sharded_;  // of both; empty if they are not sharded
};

}  // namespace ddprun
