#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "worker/data/batch.h"
#include "worker/parallel/forms/parameter_server/parameter_server.h"
#include "worker/parallel/sharding/sharded_state.h"
#include "worker/trainer/session/run_position.h"
#include "worker/trainer/session/session.h"

namespace ddprun::trainer {

// A session with servers of parameters: parallel.strategy = parameter_server. An optimizer step uses one worker's
// gradient of the next train.batch_size samples, and step() is a round of several: parallel.round of them, fewer if an
// epoch, the run or the steps to a checkpoint end earlier. After it all ranks have the same parameters.
//
// With one worker, or a staleness of 0 and no buffers, the steps are those of a single process, bit for bit.
//
// The constructor gives all ranks rank 0's parameters and buffers. Ownership and threads: Session's.
// Errors: besides those of Session, Errc::usage naming parallel.servers if it leaves no worker.
class AsynchronousSession final : public Session {
 public:
  AsynchronousSession(const TrainJob& job, TrainState& state, ProcessGroup& group);

  StepResult step(StepRequests requests) override;
  Evaluation evaluate() override;

  WholeState gather_state() override;
  WholeState whole_state() override;
  void distribute_state(const WholeState& whole) override;
  void visit_parameters(const DataParallelism::Visitor& visit) override;
  void visit_replicas(const ReplicaVisitor& visit) override;

  void record_saved_bytes() override { records_saved_bytes_ = true; }
  const std::map<std::string, std::size_t>& saved_bytes() const override { return saved_bytes_; }
  void listen_to_phases(PhaseListener listener) override { phase_listener_ = std::move(listener); }
  void record_transfers(std::vector<Transfer>*) override {}  // there are no reductions

  std::int64_t total_steps() const override { return position_.total_steps(); }
  std::int64_t batch_size() const override { return micro_batch_; }
  std::int64_t step_samples() const override { return position_.plan().step_samples; }
  int ranks_of_step() const override { return 1; }

 private:
  using Clock = std::chrono::steady_clock;
  // This rank's part of a round.
  struct Share {
    std::int64_t samples = 0;
    std::int64_t updates = 0;  // counted at a server
    double loss_sum = 0;
    std::size_t activation_peak = 0;
    StepTimes times;
  };

  sharding::ShardedState state_of_servers() const;  // that of the optimizer, at a server
  std::int64_t updates_of_round() const;
  std::vector<data::Batch> batches_of(std::int64_t number) const;
  void compute(std::int64_t number, Share& share);
  void forward_and_backward(const data::Batch& batch, double items, Share& share);
  void clip_gradients() const;
  void update(Share& share);
  void end_phase(Seconds StepTimes::*phase, Clock::time_point& from, Share& share) const;
  std::vector<std::int64_t> take_staleness();
  void advance(StepResult& result);

  const TrainConfig& config_;
  const Datasets& datasets_;
  const tasks::Task& task_;
  ParameterServer server_;
  RunPosition position_;
  const std::int64_t micro_batch_;
  std::vector<std::int64_t> order_;          // that of the epoch's samples
  std::vector<std::int64_t> old_staleness_;  // at a server: that of the rounds before
  PhaseListener phase_listener_;
  bool records_saved_bytes_ = false;
  std::map<std::string, std::size_t> saved_bytes_;
};

}  // namespace ddprun::trainer
