#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/parallel/distributed_data_parallel.h"
#include "ddprun/worker/parallel/mesh/device_mesh.h"
#include "ddprun/worker/parallel/pipeline/rank_pipeline.h"
#include "ddprun/worker/parallel/sharding/sharded_state.h"

namespace ddprun::pipeline {

// Several pipelines, each with its part of the batch: the ranks of a mesh's axis "pipeline" have the stages of a
// model, and those of its axis "data" average the gradients of the same stages. As DataParallelism it knows the
// whole model; passes go through train() and RankPipeline::evaluate().
//
// Ownership: model and mesh outlive this object.
// Threads, errors: those of RankPipeline and DistributedDataParallel.
class PipelinedDataParallel final : public DataParallelism {
 public:
  // options.ignored_parameters and own_buckets are set here. With shard_gradients the update of each stage is divided
  // among its data ranks: see divided().
  PipelinedDataParallel(nn::Module& model, const DeviceMesh& mesh, const std::vector<std::size_t>& cuts,
                        const Schedule& schedule, DdpOptions options);

  // Computes the gradients of a step, averaged over the data ranks.
  void train(const StepFunctions& step) { pipeline_->train(step, *ddp_); }
  // Both references are valid until cut_at().
  RankPipeline& pipeline() { return *pipeline_; }
  const RankPipeline& pipeline() const { return *pipeline_; }

  // Cuts the model elsewhere, between two steps: parameters and buffers move to the ranks that have them then.
  // Gradients are dropped. Collective.
  void cut_at(const std::vector<std::size_t>& cuts);

  // The buckets of the gradients that this rank of the pipeline has.
  GradientBuckets buckets_of(int rank) const { return gradient_buckets(model_, options_of(rank)); }

  // Throws Errc::unsupported: a rank has only some stages.
  Variable forward(const Variable& input) override;
  void join_pass() override { ddp_->join_pass(); }
  void join_backward() override { ddp_->join_backward(); }
  std::shared_ptr<void> hold_reduction() override { return ddp_->hold_reduction(); }
  const DividedParameters* divided() const override { return ddp_->divided(); }
  ProcessGroup& shard_group() const override { return ddp_->shard_group(); }
  void zero_grad() override { ddp_->zero_grad(); }
  void parameters_updated() override { ddp_->parameters_updated(); }
  void sync_buffers() override { ddp_->sync_buffers(); }
  // With broadcast_buffers = false: returns the buffers of all stages, of which this rank changes its own.
  std::vector<HookState> hook_state() override;
  std::shared_ptr<void> evaluated_model() override;
  void visit_parameters(const Visitor& visit) override;
  void collect_parameters() override;
  void drop_whole_parameters() override;
  void distribute_model() override;
  std::chrono::nanoseconds waited() const override { return ddp_->waited() + pipeline_->waited(); }
  std::chrono::nanoseconds starting() const override { return ddp_->starting(); }
  void record_transfers(std::vector<Transfer>* into) override;

 private:
  DdpOptions options_of(int rank) const;
  void make_stages_at(const std::vector<std::size_t>& cuts);
  optim::NamedTensors own_tensors() const;
  // The state of the whole model, sharded over the ranks of this pipeline.
  sharding::ShardedState state() const;
  // True at the first rank of the first pipeline; if layers are divided as well, at all that have its parts of them.
  bool has_whole() const { return mesh_.coordinate("data") == 0 && pipeline_->group().rank() == 0; }

  nn::Module& model_;
  const DeviceMesh& mesh_;
  const Schedule schedule_;
  const DdpOptions options_;
  std::vector<Transfer>* transfers_ = nullptr;
  std::optional<RankPipeline> pipeline_;
  std::optional<DistributedDataParallel> ddp_;
};

}  // namespace ddprun::pipeline
