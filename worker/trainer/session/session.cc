#include "worker/trainer/session/session.h"

#include "worker/trainer/session/asynchronous_session.h"
#include "worker/trainer/session/train_session.h"

namespace ddprun::trainer {

std::unique_ptr<Session> make_session(const TrainJob& job, TrainState& state, ProcessGroup& group) {
  if (job.shared) require_same_items(*job.shared, group);
  if (job.config.parallel.strategy == "parameter_server")
    return std::make_unique<AsynchronousSession>(job, state, group);
  return std::make_unique<TrainSession>(job, state, group);
}

std::vector<StepFigures> known_figures(const StepResult& result, const checkpoint::RunState& run) {
  auto figures = result.late_figures;
  if (result.has_figures)
    figures.push_back({.step = run.step,
                       .loss = result.loss,
                       .grad_norm = result.grad_norm,
                       .loss_scale = result.loss_scale,
                       .skipped = result.skipped,
                       .skipped_steps = run.skipped_steps});
  return figures;
}

}  // namespace ddprun::trainer
