#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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
#include "ddprun/worker/parallel/data_parallel.h"
#include "ddprun/worker/parallel/data_parallelism.h"
#include "ddprun/worker/parallel/device_mesh.h"
#include "ddprun/worker/parallel/parameter_shards.h"
#include "ddprun/worker/parallel/sync_batch_norm.h"
#include "ddprun/worker/parallel/tensor/tensor_parallel.h"
#include "ddprun/worker/tasks/task.h"
#include "ddprun/worker/trainer/datasets.h"
#include "ddprun/worker/trainer/evaluation.h"
#include "ddprun/worker/trainer/load_balancer.h"
#include "ddprun/worker/trainer/lr_schedule.h"
#include "ddprun/worker/trainer/model_pipeline.h"
#include "ddprun/worker/trainer/rank_times.h"
#include "ddprun/worker/trainer/run_checkpoint.h"
#include "ddprun/worker/trainer/stopwatch.h"
#include "ddprun/worker/trainer/train_config.h"
#include "ddprun/worker/trainer/train_state.h"

namespace ddprun::trainer {

// What all sessions of a run have in common.
struct TrainJob {
  const TrainConfig& config;
  const Datasets& datasets;
  const tasks::Task& task;
};

// One optimizer step. Everything but this rank's own times is the same at all ranks.
struct StepResult {
  std::int64_t epoch = 0;            // 1 is the first
  std::int64_t samples = 0;          // of all ranks together
  std::int64_t own_samples = 0;      // of this rank
  double loss = 0;                   // mean over the items of all ranks
  std::optional<double> grad_norm;   // before clipping; with optim.clip_norm or optim.skip_outliers
  std::optional<double> loss_scale;  // with which the gradients were computed; with train.precision = fp16
  bool skipped = false;              // gradients were not finite or an outlier: the optimizer changed nothing
  std::size_t activation_peak = 0;   // bytes that forward and backward took at most at a time, on this rank
  std::uint64_t bytes_sent = 0;      // over the network, by this rank
  ModelPeaks model_peaks;            // as far as ranks divide parameters and gradients
  std::string balance;               // why the ranks' shares change after this step; empty: they do not
  bool ends_epoch = false;
  bool stop_requested = false;  // by some rank
  StepTimes times;
  std::vector<StepTimes>
      rank_times;  // of the last RankTimes::window steps, by rank, once they are complete; else empty
};

// The training of a state in one process group: gradient synchronisation, and the loader of this rank's samples. When a
// group ends, so does the session, and another session on another group, of any size, continues where the state is.
//
// The constructor gives all ranks rank 0's parameters and buffers; it does not compare positions. The caller sees to it
// that all ranks' states stand at the same step, with the same optimizer state.
//
// Ownership: job, state and group outlive the session. There is one session at a time for a state.
// Threads: one at a time. Constructor, step() and evaluate() are collective.
// Errors: what the parts throw, Errc::usage for settings that leave nothing to train with this many ranks. When step()
//   throws, the state may be within a step: restore it before it is used again.
class TrainSession {
 public:
  TrainSession(const TrainJob& job, TrainState& state, ProcessGroup& group);
  TrainSession(const TrainSession&) = delete;
  TrainSession& operator=(const TrainSession&) = delete;

  // Trains the next samples of the data order and advances the state: forward, backward, update. request_stop: this
  // rank's part of StepResult::stop_requested, which costs no message of its own.
  StepResult step(bool request_stop);
  // The state's model on the test set.
  Evaluation evaluate();

  // The state as a checkpoint has it, whatever part of it each rank has: at rank 0, and of no use at the others; in the
  // memory of model and optimizer where those are whole. Valid until release_whole_state(). Collective, all of them.
  WholeState gather_state();
  WholeState whole_state();                        // the same with any values, to be filled by a checkpoint
  void distribute_state(const WholeState& whole);  // but for its averages
  void distribute_averages(const WholeState& whole);
  void release_whole_state() { parallelism_->drop_whole_parameters(); }
  // Calls visit(name, value) for each parameter, whole and at every rank, in the model's order. Collective.
  void visit_parameters(const DataParallelism::Visitor& visit);

  // What operations of the next step keep for the backward pass, in its first micro-batch: bytes by module path.
  void record_saved_bytes() { records_saved_bytes_ = true; }
  const std::map<std::string, std::size_t>& saved_bytes() const { return saved_bytes_; }

  // Is told of each phase of a step when it has ended: the time in StepTimes that it is, and when it was. A function
  // that is empty ends that. For a profiler, as are transfers: see Reducer::record_transfers().
  using PhaseListener = std::function<void(Seconds StepTimes::*phase, std::chrono::steady_clock::time_point from,
                                           std::chrono::steady_clock::time_point to)>;
  void listen_to_phases(PhaseListener listener) { phase_listener_ = std::move(listener); }
  void record_transfers(std::vector<Transfer>* into) { parallelism_->record_transfers(into); }

  // What this rank alone keeps from step to step, such as the error of a communication hook.
  std::vector<HookState> own_state();

  // Of the whole run, those before this session included.
  std::int64_t total_steps() const;
  DataParallelism& parallelism() { return *parallelism_; }
  const TensorParallel* tensor() const { return tensor_.get(); }  // null: without parallel.tensor
  TrainState& state() { return state_; }
  const TrainState& state() const { return state_; }
  ProcessGroup& group() { return group_; }
  const DeviceMesh& mesh() const { return mesh_; }
  // The ranks that have the same part of the model, and samples of their own.
  ProcessGroup& data_group() const { return mesh_.group("data"); }
  bool is_first() const { return group_.rank() == 0; }
  // Samples of this rank's micro-batch, at most.
  std::int64_t batch_size() const { return micro_batch_; }
  // Samples of a full step, of all ranks together.
  std::int64_t step_samples() const { return plan_.step_samples; }

 private:
  class PhaseTimer;

  void make_optimizer_of_parts(optim::NamedParameters parts, std::vector<optim::ParameterGroup> groups);
  const StateDivision& division_of_optimizer() const;
  bool collects() const;
  Evaluation evaluate_parameters();
  Evaluation evaluate_pipeline();
  double learning_rate();
  void open_epoch();
  void check_equal_batches(std::int64_t samples) const;
  std::int64_t micro_batch_of(int rank) const;
  std::int64_t micro_batches(std::int64_t samples, int rank) const;
  std::int64_t most_micro_batches(std::int64_t samples) const;
  void balance(StepResult& result);
  std::vector<data::Batch> take_batches(std::int64_t samples);
  void make_passes(const std::vector<data::Batch>& batches, double items, std::int64_t samples, double& loss_sum,
                   PhaseTimer& timer);
  void optimize(const std::vector<data::Batch>& batches, bool request_stop, StepResult& result, PhaseTimer& timer);
  bool unscale_gradients(StepResult& result);
  bool accept_gradients(StepResult& result);
  void clip_gradients(StepResult& result) const;
  // For other ranks and the network.
  std::chrono::nanoseconds waited() const;
  bool is_divided() const { return shards_ || tensor_ || pipelined_; }
  double sum_of_squares() const;
  double square_sum_over_tensor_ranks(const optim::NamedParameters& parameters) const;
  double sum_over_parts(double value, bool of_tensor_ranks) const;
  void train_pipeline(const std::vector<data::Batch>& batches, double items_of_step, double& loss_sum);
  // Adds a batch's loss, and gives what backward() begins from.
  Variable weighted(const tasks::WeightedLoss& result, double items_of_step, double& loss_sum) const;
  void forward_and_backward(const data::Batch& batch, double items_of_step, double& loss_sum, PhaseTimer& timer);
  std::uint64_t bytes_sent() const;  // by all groups: ProcessGroup::bytes_sent()
  void advance(StepResult& result);

  const TrainConfig& config_;
  const Datasets& datasets_;
  TrainState& state_;
  ProcessGroup& group_;
  const DeviceMesh mesh_;
  const std::unique_ptr<TensorParallel> tensor_;  // with parallel.tensor
  const std::unique_ptr<tasks::Task> own_task_;   // in place of the job's, where ranks have parts of the scores
  const tasks::Task& task_;
  const std::unique_ptr<pipeline::DevicePipeline> device_pipeline_;  // with parallel.micro_batches and devices
  const std::unique_ptr<DataParallelism> parallelism_;
  pipeline::PipelinedDataParallel* const pipelined_;  // with parallel.pipeline: parallelism_; else null
  const std::unique_ptr<DataParallel> replicas_;      // with parallel.strategy = data_parallel
  std::optional<SyncBatchNorm> sync_batch_norm_;
  std::optional<ParameterShards> shards_;  // with parallel.zero
  const Replicas replicas_of_state_;
  const optim::NamedParameters parameters_;  // that this rank updates
  data::EpochPlan plan_;
  std::optional<LoadBalancer> balancer_;  // with parallel.balance
  const std::int64_t micro_batch_;
  RankTimes rank_times_;
  PhaseListener phase_listener_;
  bool records_saved_bytes_ = false;
  std::map<std::string, std::size_t> saved_bytes_;
  std::optional<LrSchedule> lr_schedule_;  // from the first step on: the run's length is known once it has resumed
  std::optional<data::Loader> loader_;     // of what is left of the epoch; none between two epochs
};

}  // namespace ddprun::trainer
