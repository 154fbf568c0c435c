#include "ddprun/worker/trainer/loop.h"

namespace ddprun::trainer {
namespace {

StepResult make_step(Session& session, bool request_stop, StepBackup* backup) {
  if (!backup) return session.step(request_stop);
  backup->begin_step();
  try {
    auto result = session.step(request_stop);
    backup->end_step(result);
    return result;
  } catch (...) {
    backup->undo_step();
    throw;
  }
}

// Returns whether the run stops after this step.
bool tell(Session& session, Observer& observer, const StepResult& result, bool repeated) {
  const auto total = session.total_steps();
  const bool last = session.state().run.step == total;
  const bool stops = result.stop_requested && !last;
  observer.step_finished(
      {.session = session, .result = result, .total_steps = total, .last = last, .stops = stops, .repeated = repeated});
  return stops;
}

}  // namespace

LoopEnd run_loop(Session& session, Observer& observer, StepBackup* backup) {
  const auto total = session.total_steps();
  const auto& step = session.state().run.step;
  observer.session_started(session);
  if (backup && backup->last()) {
    const auto last = *backup->last();
    if (tell(session, observer, last.result, true)) return LoopEnd::stopped;
  }
  while (step < total)
    if (tell(session, observer, make_step(session, observer.stop_requested(), backup), false)) return LoopEnd::stopped;
  observer.run_finished(session);
  return LoopEnd::finished;
}

}  // namespace ddprun::trainer
