#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/trainer/session/parallel_forms.h"
#include "worker/trainer/session/rank_times.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/session/step_runner.h"
#include "worker/trainer/session/step_values.h"

namespace ddprun::trainer {

// The sums over all ranks that a step needs besides gradients: requests of ranks, the use of experts, losses, and the
// times of ranks. They travel in one allreduce, so that all ranks learn of a request in the same step.
//
// Ownership: the sources outlive this object, and it the work that start() returns. Threads: one at a time; start() and
// take() are collective. Errors: those of the group.
class StepSums {
 public:
  struct Sources {
    ProcessGroup& group;
    const ParallelForms& forms;
    StepValues& values;
    const StepRunner& runner;
    RankTimes& times;
  };

  explicit StepSums(const Sources& sources) : from_(sources) {}

  // Begins those of a step with this rank's requests. wants_next: whether this rank needs the next step's figures.
  void begin(StepRequests requests, bool wants_next);
  // with_losses: the sums have the losses of all steps in the values. The same at all ranks.
  WorkPtr start(bool with_losses);
  // Sets what the result has of the sums, once that work is done. with_losses: as before. Sums without losses are
  // followed by those of the losses if a rank has requested a stop: this step turns out to be the last one here.
  void take(bool with_losses, StepResult& result);
  // Returns whether some rank needs the figures of the step after the one that was taken last.
  bool next_is_read() const { return next_is_read_; }

 private:
  void append_expert_numbers();
  std::vector<double> own_losses() const;
  void take_figures(std::span<const double> losses, StepResult& result);
  void read_late(StepResult& result);

  const Sources from_;
  std::vector<double> sums_;  // this rank's addends at first
  std::size_t first_of_experts_ = 0;
  std::size_t first_loss_ = 0;
  bool next_is_read_ = true;
};

}  // namespace ddprun::trainer
