#include "worker/trainer/loop.h"

namespace ddprun::trainer {
namespace {

StepResult make_step(Session& session, StepRequests requests, StepBackup* backup) {
  if (!backup) return session.step(requests);
  backup->begin_step();
  try {
    auto result = session.step(requests);
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
  observer.step_finished({.session = session,
                          .result = result,
                          .total_steps = total,
                          .last = last,
                          .stops = stops,
                          .changes = result.change_requested && !repeated && !last,
                          .repeated = repeated});
  return stops;
}

}  // namespace

LoopEnd run_loop(Session& session, Observer& observer, StepBackup* backup,
                 const std::function<bool()>& change_requested) {
  const auto total = session.total_steps();
  const auto& step = session.state().run.step;
  observer.session_started(session);
  if (backup && backup->last() && !backup->events_done()) {
    const auto last = *backup->last();
    if (tell(session, observer, last.result, true)) return LoopEnd::stopped;
  }
  observer.training_started(session);
  while (step < total) {
    const StepRequests requests(observer.stop_requested(), change_requested && change_requested());
    auto result = make_step(session, requests, backup);
    session.balance(result);
    if (tell(session, observer, result, false)) return LoopEnd::stopped;
    if (result.change_requested && step < total) {
      if (backup) backup->end_events();
      return LoopEnd::changes;
    }
  }
  observer.run_finished(session);
  return LoopEnd::finished;
}

}  // namespace ddprun::trainer
