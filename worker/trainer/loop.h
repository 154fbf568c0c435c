#pragma once

#include "ddprun/worker/trainer/observer.h"
#include "ddprun/worker/trainer/session/session.h"
#include "ddprun/worker/trainer/session/step_backup.h"

namespace ddprun::trainer {

enum class LoopEnd {
  finished,  // all steps of the run are done
  stopped,   // some rank requested it
};

// Trains from the position of the session's state to the end of the run. Collective. Throws what a step or an observer
// throws.
// backup: set if the run can go on in another group. The events of its last step come first, since they may not have
// had all their effects in the group before. A step that fails leaves the state as it was before the step.
LoopEnd run_loop(Session& session, Observer& observer, StepBackup* backup = nullptr);

}  // namespace ddprun::trainer
