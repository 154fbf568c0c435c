#pragma once

#include "ddprun/worker/trainer/observer.h"
#include "ddprun/worker/trainer/session/session.h"

namespace ddprun::trainer {

enum class LoopEnd {
  finished,  // all steps of the run are done
  stopped,   // at the request of some rank
};

// Trains from where the session's state stands to the end of the run. Collective. Throws what a step or an observer
// throws.
LoopEnd run_loop(Session& session, Observer& observer);

}  // namespace ddprun::trainer
