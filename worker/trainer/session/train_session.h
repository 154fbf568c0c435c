#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/data/epoch_plan.h"
#include "ddprun/worker/data/loader.h"
#include "ddprun/worker/optim/clip.h"
#include "ddprun/worker/optim/lr_schedule.h"
#include "ddprun/worker/parallel/context/context_parallel.h"
#include "ddprun/worker/parallel/data_parallel.h"
#include "ddprun/worker/parallel/data_parallelism.h"
#include "ddprun/worker/parallel/device_mesh.h"
#include "ddprun/worker/parallel/expert/expert_parallel.h"
#include "ddprun/worker/parallel/parameter_shards.h"
#include "ddprun/worker/parallel/sync_batch_norm.h"
#include "ddprun/worker/parallel/tensor/tensor_parallel.h"
#include "ddprun/worker/trainer/session/load_balancer.h"
#include "ddprun/worker/trainer/session/model_pipeline.h"
#include "ddprun/worker/trainer/session/rank_times.h"
#include "ddprun/worker/trainer/session/session.h"

namespace ddprun::trainer {

// A session whose ranks make each optimizer step together: gradient synchronisation, and the loader of this rank's
// samples.
//
// The constructor gives all ranks rank 0's parameters and buffers; it does not compare positions. The caller sees to it
// that all ranks' states stand at the same step, with the same optimizer state.
class TrainSession final : public Session {
 public:
  TrainSession(const TrainJob& job, TrainState& state, ProcessGroup& group);

  // Forward, backward, update.
  StepResult step(bool request_stop) override;
  Evaluation evaluate() override;

  WholeState gather_state() override;
  WholeState whole_state() override;
  void distribute_state(const WholeState& whole) override;
  void distribute_averages(const WholeState& whole) override;
  void release_whole_state() override { parallelism_->drop_whole_parameters(); }
  void visit_parameters(const DataParallelism::Visitor& visit) override;
  void visit_replicas(const ReplicaVisitor& visit) override;
  std::vector<HookState> own_state() override;

  void record_saved_bytes() override { records_saved_bytes_ = true; }
  const std::map<std::string, std::size_t>& saved_bytes() const override { return saved_bytes_; }
  void listen_to_phases(PhaseListener listener) override { phase_listener_ = std::move(listener); }
  void record_transfers(std::vector<Transfer>* into) override { parallelism_->record_transfers(into); }

  std::int64_t total_steps() const override;
  std::int64_t batch_size() const override { return micro_batch_; }
  std::int64_t step_samples() const override { return plan_.step_samples; }
  int ranks_of_step() const override { return data_group().size(); }

  DataParallelism& parallelism() { return *parallelism_; }
  const TensorParallel* tensor() const { return tensor_.get(); }     // null: without parallel.tensor
  const ContextParallel* context() const { return context_.get(); }  // null: without parallel.context
  const ExpertParallel* experts() const { return experts_.get(); }   // null: without parallel.expert
  // Null: without parallel.pipeline.
  const pipeline::RankPipeline* stages() const { return pipelined_ ? &pipelined_->pipeline() : nullptr; }
  const DeviceMesh& mesh() const { return mesh_; }
  // The ranks that have samples of their own, one of all that share them.
  ProcessGroup& data_group() const;
  // The ranks that have gradients of their own, which are averaged.
  ProcessGroup& gradient_group() const;
  // The ranks that have the same part of the model, with updates of their own.
  ProcessGroup& replica_group() const;

 private:
  class PhaseTimer;

  void make_optimizer_of_parts(optim::NamedParameters parts, std::vector<optim::ParameterGroup> groups);
  const StateDivision& division_of_optimizer() const;
  const SlicedTensors* slices() const;
  bool collects() const;
  Evaluation evaluate_parameters();
  Evaluation evaluate_pipeline();
  Evaluation evaluate_positions();
  double learning_rate();
  void open_epoch();
  void check_equal_batches(std::int64_t samples) const;
  std::int64_t micro_batch_of(int rank) const;
  std::int64_t micro_batches(std::int64_t samples, int rank) const;
  std::int64_t most_micro_batches(std::int64_t samples) const;
  void balance(StepResult& result);
  std::vector<double> seconds_of_stages(const std::vector<StepTimes>& ranks) const;
  void balance_stages(StepResult& result);
  void cut_at(const std::vector<std::size_t>& cuts);
  std::vector<data::Batch> take_batches(std::int64_t samples, PhaseTimer& timer);
  data::Batch own_part(const data::Batch& batch) const;
  void make_passes(const std::vector<data::Batch>& batches, double items, std::int64_t samples, PhaseTimer& timer);
  void optimize(const std::vector<data::Batch>& batches, bool request_stop, StepResult& result, PhaseTimer& timer);
  // Given the gradients. reads: the losses, too.
  void update(bool request_stop, bool reads, StepResult& result, PhaseTimer& timer);
  bool is_on_device() const { return device_.type == DeviceType::cuda; }
  bool reads_values(const StepResult& result) const;
  bool prepare_on_device(StepResult& result);
  bool prepare_on_host(StepResult& result);
  void update_parameters(PhaseTimer& timer);
  std::vector<double> own_loss_sums() const;
  bool wants_figures(std::int64_t step) const;
  WorkPtr start_sums(std::vector<double>& sums, bool with_losses);
  void take_figures(std::span<const double> loss_sums, StepResult& result);
  void read_late(StepResult& result);
  bool unscale_gradients(StepResult& result);
  bool accept_gradients(StepResult& result);
  void clip_gradients(StepResult& result) const;
  // For other ranks and the network.
  std::chrono::nanoseconds waited() const;
  bool is_divided() const { return shards_ || slices() || pipelined_; }
  double sum_of_squares() const;
  double square_sum_over_slices(const optim::NamedParameters& parameters) const;
  double sum_over_parts(double value, bool of_slices) const;
  void train_pipeline(const std::vector<data::Batch>& batches, double items_of_step);
  // Adds a batch's loss, and gives what backward() begins from.
  Variable weighted(const tasks::WeightedLoss& result, double items_of_step);
  void forward_and_backward(const data::Batch& batch, double items_of_step, PhaseTimer& timer);
  std::uint64_t bytes_sent() const;  // by all groups: ProcessGroup::bytes_sent()
  void advance(StepResult& result);

  const TrainConfig& config_;
  const Datasets& datasets_;
  const DeviceMesh mesh_;
  const std::unique_ptr<ContextParallel> context_;  // with parallel.context
  const std::unique_ptr<TensorParallel> tensor_;    // with parallel.tensor
  const std::unique_ptr<ExpertParallel> experts_;   // with parallel.expert
  const std::unique_ptr<tasks::Task> own_task_;     // in place of the job's, where ranks have parts of the scores
  const tasks::Task& task_;
  const std::unique_ptr<pipeline::DevicePipeline> device_pipeline_;  // with parallel.micro_batches and devices
  const std::vector<pipeline::Layer> layers_;              // with parallel.pipeline, where their times are needed
  std::optional<pipeline::StageBalancer> stage_balancer_;  // with parallel.pipeline and balance
  const std::unique_ptr<DataParallelism> parallelism_;
  pipeline::PipelinedDataParallel* const pipelined_;  // with parallel.pipeline: parallelism_; else null
  const std::unique_ptr<DataParallel> replicas_;      // with parallel.strategy = data_parallel
  std::optional<SyncBatchNorm> sync_batch_norm_;
  std::optional<ParameterShards> shards_;  // with parallel.zero
  const Replicas replicas_of_state_;
  const std::vector<std::string> own_parameters_;  // DataParallelism::own_parameters()
  const Device device_;                            // the model's, where its inputs are
  const Device targets_device_;                    // where losses are computed
  optim::NamedParameters parameters_;              // that this rank updates
  data::EpochPlan plan_;
  std::optional<LoadBalancer> balancer_;  // with parallel.balance, without a pipeline
  const std::int64_t micro_batch_;
  const std::vector<nn::MixtureOfExperts*> mixtures_;  // of the model
  RankTimes rank_times_;
  StepValues values_;
  bool reads_next_ = true;  // the next step's values, as some rank wishes
  PhaseListener phase_listener_;
  bool records_saved_bytes_ = false;
  std::map<std::string, std::size_t> saved_bytes_;
  std::optional<optim::LrSchedule>
      lr_schedule_;                     // from the first step on: the run's length is known once it has resumed
  std::optional<data::Loader> loader_;  // of what is left of the epoch; none between two epochs
};

}  // namespace ddprun::trainer
