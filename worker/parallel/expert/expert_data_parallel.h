#pragma once

#include <cstdint>
#include <memory>

#include "ddprun/worker/parallel/data_parallelism.h"
#include "ddprun/worker/parallel/distributed_data_parallel.h"
#include "ddprun/worker/parallel/expert/expert_parallel.h"

namespace ddprun {

// Data parallelism of a model whose experts are divided: gradients of experts are summed over the ranks that have the
// same experts, those of everything else over all ranks, and both divided by the number of all ranks, each of which has
// samples of its own.
//
// The gradients of everything else have a group of their own where all ranks divide the experts, so that exchanges of
// tokens do not wait for them.
//
// Ownership: model, experts and groups outlive this object; the model's gradients may outlive it.
// Threads: one at a time; the constructor is collective over all. All ranks make equally many passes. Errors: those of
// DistributedDataParallel.
class ExpertDataParallel final : public DataParallelism {
 public:
  // replicas: the ranks that have the same experts. Only the limits of buckets are used of the options.
  ExpertDataParallel(nn::Module& model, ExpertParallel& experts, ProcessGroup& replicas, ProcessGroup& all,
                     const BucketLimits& limits = {});

  Variable forward(const Variable& input) override;
  void prepare_forward() override;
  // Throws Errc::unsupported: a rank without samples has tokens of others to compute, and makes a pass of any samples
  // that count for nothing.
  void join_pass() override;
  void join_backward() override;
  bool reduces_every_pass() const override { return true; }
  std::shared_ptr<void> hold_reduction() override;

  ProcessGroup& shard_group() const override { return all_; }
  std::uint64_t bytes_sent() const override { return own_group_ ? own_group_->bytes_sent() : 0; }

  void zero_grad() override { others_.zero_grad(); }  // clears the whole model's
  void parameters_updated() override {}
  void sync_buffers() override { others_.sync_buffers(); }
  // Experts are visited with this rank's values.
  void visit_parameters(const Visitor& visit) override;
  // Copies everything else from rank 0, and experts from the first of the ranks that have them.
  void distribute_model() override;

  std::chrono::nanoseconds waited() const override { return of_experts_.waited() + others_.waited(); }
  std::chrono::nanoseconds starting() const override { return of_experts_.starting() + others_.starting(); }
  void record_transfers(std::vector<Transfer>* into) override;

 private:
  nn::Module& model_;
  ExpertParallel& experts_;
  ProcessGroup& replicas_;
  ProcessGroup& all_;
  const std::unique_ptr<ProcessGroup> own_group_;  // a group of all ranks; null where experts have another group
  DistributedDataParallel of_experts_;
  DistributedDataParallel others_;
};

}  // namespace ddprun
