#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/data/batch.h"
#include "worker/trainer/session/gradient_rules.h"
#include "worker/trainer/session/local_state.h"
#include "worker/trainer/session/parallel_forms.h"
#include "worker/trainer/session/phase_timer.h"
#include "worker/trainer/session/rank_times.h"
#include "worker/trainer/session/run_position.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/session/step_batches.h"
#include "worker/trainer/session/step_runner.h"
#include "worker/trainer/session/step_sums.h"

namespace ddprun::trainer {

// A session whose ranks make each optimizer step together: gradient synchronization, and the loader of this rank's
// samples.
//
// The constructor gives all ranks rank 0's parameters and buffers; it does not compare positions. The caller ensures
// that all ranks' states are at the same step, with the same optimizer state. Ownership, threads and errors: Session's.
class TrainSession final : public Session {
 public:
  // Returns the times of a step that this rank tells the others, from those that it has measured.
  using ToldTimes = std::function<StepTimes(const StepTimes& measured)>;

  // told: empty for the measured times; others make what depends on them independent of the clock.
  TrainSession(const TrainJob& job, TrainState& state, ProcessGroup& group, ToldTimes told = {});

  // Runs forward, backward and update.
  StepResult step(StepRequests requests) override;
  // Decides by the times of forward and backward passes, which all ranks know.
  void balance(StepResult& result) override;
  bool can_end_step() const override;
  EndedStep end_step() override;
  Evaluation evaluate() override;

  WholeState gather_state() override { return local_.gather(); }
  WholeState whole_state() override { return local_.whole(); }
  void distribute_state(const WholeState& whole) override { local_.distribute(whole); }
  void distribute_averages(const WholeState& whole) override { local_.distribute_averages(whole); }
  std::optional<StateParts> parts() override { return local_.parts(); }
  void parts_restored() override { local_.parts_restored(); }
  void release_whole_state() override { local_.release(); }
  void visit_parameters(const DataParallelism::Visitor& visit) override { local_.visit_parameters(visit); }
  void visit_replicas(const ReplicaVisitor& visit) override { local_.visit_replicas(visit); }
  std::vector<HookState> own_state() override { return local_.own_state(); }
  ProcessGroup& own_state_group() override { return forms_.groups.gradients; }

  void record_saved_bytes() override { runner_->record_saved_bytes(); }
  const std::map<std::string, std::size_t>& saved_bytes() const override { return runner_->saved_bytes(); }
  void listen_to_phases(PhaseListener listener) override { phase_listener_ = std::move(listener); }
  void record_transfers(std::vector<Transfer>* into) override { forms_.parallelism.record_transfers(into); }

  std::int64_t total_steps() const override { return position_.total_steps(); }
  std::int64_t batch_size() const override { return micro_batch_; }
  std::int64_t step_samples() const override { return position_.plan().step_samples; }
  int ranks_of_step() const override { return forms_.groups.samples.size(); }

  const ParallelForms& forms() const { return forms_; }

 private:
  // How far the step in progress has come. Other ranks can only apply it once it is announced here.
  enum class Progress : std::uint8_t {
    passes,
    announced,  // this rank has its gradients, and the others may know
    updated,    // all ranks have announced it, and the optimizer has made it here
  };

  void spread_values();
  Evaluation evaluate_parameters();
  std::optional<std::vector<int>> begin_shards();
  std::vector<data::Batch> take_batches(std::int64_t samples, PhaseTimer& timer);
  void optimize(const StepRunner::Step& step, StepRequests requests, StepResult& result, PhaseTimer& timer);
  // Updates, given the gradients. reads: whether it reads the losses, too.
  void update(StepRequests requests, bool reads, StepResult& result, PhaseTimer& timer);
  bool is_on_device() const { return forms_.device().type == DeviceType::cuda; }
  bool reads_values(const StepResult& result) const;
  void update_parameters(PhaseTimer& timer);
  bool wants_figures(std::int64_t step) const;
  void complete(StepResult& result);

  const TrainConfig& config_;
  const bool recovers_;
  const Datasets& datasets_;
  ParallelForms forms_;
  LocalState local_;
  RunPosition position_;
  const std::int64_t micro_batch_;
  StepBatches batches_;
  StepValues values_;
  const std::unique_ptr<StepRunner> runner_;
  const std::unique_ptr<GradientRules> rules_;
  const ToldTimes told_times_;
  RankTimes rank_times_;
  StepSums sums_;
  StepResult result_;  // that of the step in progress
  Progress progress_ = Progress::passes;
  std::uint64_t sent_before_ = 0;  // by this rank, in bytes, before the step
  PhaseListener phase_listener_;
};

}  // namespace ddprun::trainer
