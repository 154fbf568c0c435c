#pragma once

#include <functional>

#include "worker/trainer/observer.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/session/step_backup.h"

namespace ddprun::trainer {

enum class LoopEnd {
  finished,  // all steps of the run are done
  stopped,   // some rank requested it
  changes,   // some rank requested it: the run goes on in another group
};

// Trains from the position of the session's state to the end of the run. Collective. Throws what a step or an observer
// throws.
// backup: set if the run can go on in another group. The events of its last step come first, unless all ranks have had
// them in the group before. A step that fails leaves the state as it was before the step.
// change_requested: asked before each step, returns whether this rank wants all to go on in another group after it.
LoopEnd run_loop(Session& session, Observer& observer, StepBackup* backup = nullptr,
                 const std::function<bool()>& change_requested = {});

}  // namespace ddprun::trainer
