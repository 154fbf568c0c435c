#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/checkpoint/run_state.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// A step that is done, and the part of the run's position that the events after it change.
struct LastStep {
  StepResult result;
  std::optional<double> best_loss;             // that of the run after the step, before its events
  std::optional<checkpoint::Plateau> plateau;  // that of the run at the same time
  bool events_done = false;                    // at all ranks
};

// A backup of the training loop with which a run can go on in another process group: the model's buffers, which passes
// change, as they were before the step in progress, and the last step that is done.
//
// Ownership: the state outlives this object, which has memory of its own for a copy of the buffers. Threads: one at a
// time. Errors: none of its own.
class StepBackup {
 public:
  // on_applied: called after each step with its number.
  StepBackup(TrainState& state, std::function<void(std::int64_t step)> on_applied);

  void begin_step();
  // To be called when the step has failed: restores the state before it. Gradients are no part of it.
  void undo_step();
  void end_step(const StepResult& result);

  // None if no step was done in this process and in those from which the state was copied.
  const std::optional<LastStep>& last() const { return last_; }
  // Takes over the record of the rank that the state was copied from.
  void set_last(std::optional<LastStep> last) { last_ = std::move(last); }
  // To be called when all ranks have had the events after the last step.
  void end_events();
  bool events_done() const { return last_ && last_->events_done; }
  // To be called if they will be repeated: takes back their changes of the run's position.
  void undo_events();

 private:
  TrainState& state_;
  const std::function<void(std::int64_t step)> on_applied_;
  std::vector<Tensor> buffers_;  // as they were before the step, in the model's order
  std::optional<LastStep> last_;
};

}  // namespace ddprun::trainer
