#pragma once

#include <functional>

#include "worker/comm/process_group.h"
#include "worker/trainer/session/step_backup.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Gets the state of a run from the StateSender at rank 0 of the group, and follows its updates until the sender ends
// the state. caught_up: called once, when the state lacks no more than the last steps: this process can join the run.
// Throws what the group throws, but Errc::connection_lost for a sender that does not answer in time, as in a long step;
// and Errc::protocol. The state is of no use then.
//
// Ownership: the caller's; no session uses the state. Threads: one at a time.
void receive_state(TrainState& state, StepBackup& backup, ProcessGroup& group, const std::function<void()>& caught_up);

}  // namespace ddprun::trainer
