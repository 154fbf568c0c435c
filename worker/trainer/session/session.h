#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/forms/data_parallelism.h"
#include "worker/tasks/task.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/activation_peaks.h"
#include "worker/trainer/session/evaluation.h"
#include "worker/trainer/session/expert_use.h"
#include "worker/trainer/session/rank_times.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/session/shared_items.h"
#include "worker/trainer/session/state_parts.h"
#include "worker/trainer/session/step_values.h"
#include "worker/trainer/session/stopwatch.h"
#include "worker/trainer/state/datasets.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// The common arguments of all sessions of a run.
struct TrainJob {
  const TrainConfig& config;
  const Datasets& datasets;
  const tasks::Task& task;
  const SharedItems* shared = nullptr;  // what all ranks have to have in common; null: not compared
  // True if the run can go on in another group after a failure of this one: all that a step exchanges with other ranks
  // comes before its first change of the state, except buffers, which are the same at all ranks after it.
  bool recovers = false;
};

// The requests of a rank to all ranks for the time after a step. They travel with its sums, not in a message of their
// own.
struct StepRequests {
  StepRequests(bool stop_run, bool change_group = false) : stop(stop_run), change(change_group) {}  // NOLINT: a flag
  bool stop = false;                                                                                // to end the run
  bool change = false;  // to go on in another process group
};

// The result of an optimizer step, or of several that are asynchronous, between two points at which all ranks have
// the same state. Everything except this rank's own times and staleness is the same at all ranks.
struct StepResult {
  std::int64_t epoch = 0;        // 1 is the first
  std::int64_t steps = 1;        // those of the optimizer
  std::int64_t samples = 0;      // those of all ranks together
  std::int64_t tokens = 0;       // those in these samples; 0 if they have none
  std::int64_t first = 0;        // position of the first sample in the order of the epoch
  std::int64_t own_samples = 0;  // those of this rank
  // True if the StepFigures of this step are set. If a CUDA device computes, they are set only in some steps.
  bool has_figures = true;
  double loss = 0;
  std::optional<double> grad_norm;
  std::optional<double> loss_scale;
  bool skipped = false;
  // The figures of earlier steps that had none, the oldest first.
  std::vector<StepFigures> late_figures;
  std::size_t activation_peak = 0;   // the most bytes that forward and backward took at a time, on this rank
  ActivationPeaks peaks_by_place;    // the same, separately for its CUDA device and the host
  std::uint64_t bytes_sent = 0;      // those sent over the network by this rank
  std::optional<ExpertUse> experts;  // none in a model without experts
  ModelPeaks model_peaks;            // set as far as ranks divide parameters and gradients
  std::string balance;               // why the ranks' shares change after this step; empty if they do not
  bool ends_epoch = false;
  bool stop_requested = false;    // true if some rank requested it
  bool change_requested = false;  // likewise
  StepTimes times;
  std::vector<StepTimes>
      rank_times;  // those of the last RankTimes::window steps, by rank, once they are complete; otherwise empty
  // At a server of parameters: the number of these steps by the age of their gradients in updates; otherwise empty.
  std::vector<std::int64_t> staleness;
};

// Returns the figures that became known with a step that is complete, those of earlier steps first. run: after the
// step.
std::vector<StepFigures> known_figures(const StepResult& result, const checkpoint::RunState& run);

// A step that has failed at this rank, which has then updated its parts of the state by itself.
struct EndedStep {
  StepResult result;    // complete if the step stands
  bool stands = false;  // all ranks are known to have their gradients. False: it counts if some rank has applied it
};

// The training of a state in one process group, as the training loop and its observers see it. When a group ends, so
// does the session, and another session on another group, of any size, goes on from the state's position.
//
// Ownership: job, state and group outlive the session. There is one session at a time for a state.
// Threads: one at a time. All methods except those that say so and plain accessors are collective.
// Errors: what the parts throw, Errc::usage for settings that leave nothing to train with this many ranks. When step()
//   throws, the state may be within a step: restore it before it is used again.
class Session {
 public:
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Trains the next samples of the data order and advances the state. requests: this rank's, of which all ranks learn
  // by StepResult.
  virtual StepResult step(StepRequests requests) = 0;
  // To be asked after step() has thrown: whether this rank can still update its own parts of the state, without any
  // other rank. end_step() does so. Not collective.
  virtual bool can_end_step() const { return false; }
  virtual EndedStep end_step() { return {}; }  // REQUIRES: can_end_step()
  // To be called after each step with its result: divides the work of the next steps anew if the ranks' times call for
  // it, and says why (StepResult::balance). parts() may be others then, of the same state: that after the step.
  virtual void balance(StepResult&) {}
  // Evaluates the state's model on the test set.
  virtual Evaluation evaluate() = 0;

  // Returns the state as a checkpoint has it, whatever part of it each rank has: at rank 0, and of no use at the
  // others; in the memory of model and optimizer if those are whole. Valid until release_whole_state().
  virtual WholeState gather_state() = 0;
  virtual WholeState whole_state() = 0;                        // the same with any values, to be filled by a checkpoint
  virtual void distribute_state(const WholeState& whole) = 0;  // all except its averages
  virtual void distribute_averages(const WholeState&) {}       // those of train.ema
  virtual void release_whole_state() {}
  // Returns what this rank updates and keeps of the state: the parts of all ranks together are the state. None with
  // servers of parameters. The handles may outlive the session.
  virtual std::optional<StateParts> parts() { return std::nullopt; }
  // To be called when the parts of all ranks have new values.
  virtual void parts_restored() {}
  // Calls visit(name, value) for each parameter, whole and at every rank, in the model's order.
  virtual void visit_parameters(const DataParallelism::Visitor& visit) = 0;
  // Visits the parameters and parts of them of which ranks have copies that are the same bit for bit between two steps.
  // Not collective.
  virtual void visit_replicas(const ReplicaVisitor& visit) = 0;
  // Returns what only this rank keeps from step to step, such as the error of a communication hook. To be called once
  // the state has been distributed; not collective.
  virtual std::vector<HookState> own_state() { return {}; }
  // Returns the group of the ranks that keep the same but for its values.
  virtual ProcessGroup& own_state_group() { return group_; }

  // Records the bytes that operations in the next step's first micro-batch keep for the backward pass, by module path.
  virtual void record_saved_bytes() = 0;
  virtual const std::map<std::string, std::size_t>& saved_bytes() const = 0;
  // Is called for each phase of a step when it has ended, with its time in StepTimes, and when it was; and, with no
  // phase, when a step begins. An empty function ends that. For a profiler, as are transfers: see
  // Reducer::record_transfers().
  using PhaseListener = std::function<void(profiler::Phase phase, std::chrono::steady_clock::time_point from,
                                           std::chrono::steady_clock::time_point to)>;
  virtual void listen_to_phases(PhaseListener listener) = 0;
  virtual void record_transfers(std::vector<Transfer>* into) = 0;

  // The steps of the whole run, those before this session included.
  virtual std::int64_t total_steps() const = 0;
  // The most samples of this rank's micro-batch.
  virtual std::int64_t batch_size() const = 0;
  // Samples of a full step of the optimizer, and the number of ranks that have some of them.
  virtual std::int64_t step_samples() const = 0;
  virtual int ranks_of_step() const = 0;

  TrainState& state() { return state_; }
  const TrainState& state() const { return state_; }
  ProcessGroup& group() { return group_; }
  bool is_first() const { return group_.rank() == 0; }

 protected:
  Session(TrainState& state, ProcessGroup& group) : state_(state), group_(group) {}

  TrainState& state_;
  ProcessGroup& group_;
};

// Makes the session that parallel.strategy asks for, once all ranks of the group have the same items of job.shared;
// throws what require_same_items() throws.
std::unique_ptr<Session> make_session(const TrainJob& job, TrainState& state, ProcessGroup& group);

}  // namespace ddprun::trainer
