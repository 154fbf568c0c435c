#include "ddprun/worker/trainer/loop.h"

namespace ddprun::trainer {

LoopEnd run_loop(Session& session, Observer& observer) {
  const auto total = session.total_steps();
  const auto& step = session.state().run.step;
  observer.session_started(session);
  while (step < total) {
    const auto result = session.step(observer.stop_requested());
    const bool last = step == total;
    const bool stops = result.stop_requested && !last;
    observer.step_finished({.session = session, .result = result, .total_steps = total, .last = last, .stops = stops});
    if (stops) return LoopEnd::stopped;
  }
  observer.run_finished(session);
  return LoopEnd::finished;
}

}  // namespace ddprun::trainer
