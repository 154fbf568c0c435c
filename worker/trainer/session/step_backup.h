#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "worker/checkpoint/run_state.h"
#include "worker/trainer/session/hook_memory.h"
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

// A backup of the training loop with which a run can go on in another process group: what passes change, the model's
// buffers and the states of a communication hook, as it was before the step in progress, and the last step that is
// done.
//
// Ownership: the state outlives this object, and a session its begin_session() to end_session(). It has memory of its
// own for copies. Threads: one at a time. Errors: those of the session's group.
class StepBackup {
 public:
  // on_applied: called after each step with its number.
  StepBackup(TrainState& state, std::function<void(std::int64_t step)> on_applied);

  // A rank that has got the state from another one first calls forget_hook(), one whose session has the states of the
  // hook already take_hook(). See HookMemory::begin().
  HookMemory::Begun begin_session(Session& session) {
    return hook_.begin(session.own_state(), session.own_state_group());
  }
  void end_session() { hook_.end(); }
  // undone: whether the run goes on after the step that undo_step() has taken back here.
  void choose_hook(bool undone) { hook_.choose_undone(undone); }
  void forget_hook() { hook_.forget(); }
  void take_hook(Session& session) { hook_.take(session.own_state()); }

  void begin_step();
  // To be called when the step has failed: restores the state before it. Gradients are no part of it.
  void undo_step();
  // To be called after that: restores what passes had changed by then.
  void redo_step();
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
  void set_buffers(const std::vector<Tensor>& values);

  TrainState& state_;
  const std::function<void(std::int64_t step)> on_applied_;
  std::vector<Tensor> buffers_;  // as they were before the step, in the model's order
  std::vector<Tensor> undone_;   // as undo_step() has found them
  HookMemory hook_;
  std::optional<LastStep> last_;
};

}  // namespace ddprun::trainer
