#include "worker/trainer/session/step_backup.h"

#include <cstddef>
#include <utility>

namespace ddprun::trainer {

StepBackup::StepBackup(TrainState& state, std::function<void(std::int64_t step)> on_applied)
    : state_(state), on_applied_(std::move(on_applied)) {
  for (const auto& [name, buffer] : state.model->named_buffers())
    buffers_.push_back(Tensor::empty(buffer.shape(), buffer.dtype()));
}

void StepBackup::begin_step() {
  const auto buffers = state_.model->named_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers_[i].copy_from(buffers[i].second);
  hook_.save();
}

void StepBackup::undo_step() {
  undone_.clear();
  for (const auto& [name, buffer] : state_.model->named_buffers()) undone_.push_back(buffer.clone());
  set_buffers(buffers_);
  hook_.undo();
}

void StepBackup::redo_step() {
  set_buffers(undone_);
  hook_.redo();
}

void StepBackup::set_buffers(const std::vector<Tensor>& values) {
  const auto buffers = state_.model->named_buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    Tensor target = buffers[i].second;
    target.copy_from(values[i]);
  }
}

void StepBackup::end_step(const StepResult& result) {
  last_ = LastStep{.result = result, .best_loss = state_.run.best_loss, .plateau = state_.run.plateau};
  on_applied_(state_.run.step);
}

void StepBackup::end_events() {
  if (last_) last_->events_done = true;
}

void StepBackup::undo_events() {
  if (!last_) return;
  last_->events_done = false;
  state_.run.best_loss = last_->best_loss;
  state_.run.plateau = last_->plateau;
  if (state_.plateau && last_->plateau) state_.plateau->set_state(*last_->plateau);
}

}  // namespace ddprun::trainer
