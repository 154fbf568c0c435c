#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/nn/module.h"
#include "worker/parallel/forms/data/distributed_data_parallel.h"
#include "worker/parallel/forms/data/zero/sharded_data_parallel.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/parallel/forms/pipeline/rank_pipeline.h"
#include "worker/parallel/sharding/sharded_buckets.h"
#include "worker/parallel/sharding/sharded_state.h"

namespace ddprun::pipeline {

// The data parallelism of the ranks that have the same stages.
struct StageParallelism {
  // Makes it for a rank's part of a model. Collective over the group.
  std::function<std::unique_ptr<DataParallelism>(nn::Module&, ProcessGroup& group, const StageTensors&)> make;
  // Returns its buckets, of any rank of the pipeline. Pure.
  std::function<GradientBuckets(nn::Module&, const StageTensors&)> buckets;
  bool own_buffers = false;  // true if buffers are each rank's own
};
// options.stages are set by the pipeline.
StageParallelism distributed_stages(DdpOptions options = {});
StageParallelism sharded_stages(ShardedOptions options);

// Several pipelines, each with its part of the batch: the ranks of one group have the stages of a model, and those of
// another, "replicas", reduce the gradients of the same stages. As DataParallelism it knows the whole model; passes go
// through train() and evaluate().
//
// Ownership: model and groups outlive this object.
// Threads, errors: those of RankPipeline and of the stages' data parallelism.
class PipelinedDataParallel final : public DataParallelism {
 public:
  PipelinedDataParallel(nn::Module& model, ProcessGroup& stages, ProcessGroup& replicas,
                        const std::vector<std::size_t>& cuts, const Schedule& schedule,
                        StageParallelism of_stages = distributed_stages());

  // Computes the gradients of a step, averaged over the replicas.
  void train(const StepFunctions& step) { pipeline_->train(step, *data_); }
  // These do what RankPipeline's methods do.
  void evaluate(int micro_batch, const StepFunctions& step) { pipeline_->evaluate(micro_batch, step, *data_); }
  void assume_inputs(const Tensor& input) { pipeline_->assume_inputs(input, *data_); }
  // Both references are valid until cut_at().
  RankPipeline& pipeline() { return *pipeline_; }
  const RankPipeline& pipeline() const { return *pipeline_; }

  // Cuts the model elsewhere, between two steps: parameters and buffers move to the ranks that have them then, but for
  // parameters of which ranks have only parts, whose values are lost. Gradients are dropped. Collective.
  void cut_at(const std::vector<std::size_t>& cuts);

  // The buckets of the gradients that this rank of the pipeline has.
  GradientBuckets buckets_of(int rank) const { return of_stages_.buckets(model_, pipeline_->tensors_of(rank)); }

  // Throws Errc::unsupported: a rank has only some stages.
  Variable forward(const Variable& input) override;
  void join_pass() override;  // as forward()
  void join_backward() override { data_->join_backward(); }
  bool reduces_every_pass() const override { return data_->reduces_every_pass(); }
  std::shared_ptr<void> hold_reduction() override { return data_->hold_reduction(); }
  bool has_whole_parameters() const override { return data_->has_whole_parameters(); }
  const ShardedBuckets* sharded_buckets() const override { return data_->sharded_buckets(); }
  ProcessGroup& shard_group() const override { return data_->shard_group(); }
  ProcessGroup& shard_group_of_slices() const override { return data_->shard_group_of_slices(); }
  ProcessGroup* replica_group() const override { return data_->replica_group(); }
  std::uint64_t bytes_sent() const override { return data_->bytes_sent(); }
  std::vector<std::string> own_parameters() const override { return data_->own_parameters(); }
  void zero_grad() override { data_->zero_grad(); }
  void parameters_updated() override { data_->parameters_updated(); }
  void sync_buffers() override { data_->sync_buffers(); }
  // The state of this rank's stages; if buffers are each rank's own, those of all stages, of which it changes its own.
  std::vector<HookState> hook_state() override;
  std::shared_ptr<void> evaluated_model() override { return data_->evaluated_model(); }
  void visit_parameters(const Visitor& visit) override;
  void parameters_restored() override { data_->parameters_restored(); }
  ModelPeaks take_peaks() override { return data_->take_peaks(); }
  std::chrono::nanoseconds waited() const override { return data_->waited() + pipeline_->waited(); }
  std::chrono::nanoseconds starting() const override { return data_->starting(); }
  void record_transfers(std::vector<Transfer>* into) override;

 private:
  void make_stages_at(const std::vector<std::size_t>& cuts);
  optim::NamedTensors own_tensors() const;
  // The state of the whole model, sharded over the ranks of this pipeline; of those that learn only if they are whole.
  sharding::ShardedState state(bool are_whole) const;
  void share(const std::string& name, const Tensor& value, const Visitor& visit);

  nn::Module& model_;
  ProcessGroup& stages_;
  ProcessGroup& replicas_;
  const Schedule schedule_;
  const StageParallelism of_stages_;
  std::vector<Transfer>* transfers_ = nullptr;
  std::unique_ptr<DataParallelism> data_;
  std::optional<RankPipeline> pipeline_;  // its tapes use data_, also when a failed step is destroyed
};

}  // namespace ddprun::pipeline
