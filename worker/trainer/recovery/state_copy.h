#pragma once

#include "worker/comm/process_group.h"
#include "worker/recovery/positions.h"
#include "worker/trainer/session/step_backup.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Gives the ranks that lag the state, of which every rank has a copy: parameters, buffers, the optimizer's state,
// averages, the loss scale, the position in the data and the state of the run's rules. All others send them tensors;
// the rest is catchup.source's, which all ranks get, as they do its last step. Throws what the group throws; the state
// of a rank that lags is then partly copied, and of no use. Collective.
//
// Ownership: state, backup and group are the caller's, and in use until it returns; no session uses the state.
// Threads: one at a time.
void copy_state(TrainState& state, StepBackup& backup, ProcessGroup& group, const Catchup& catchup);

// Gives all ranks source's record of the last step alone. Collective.
void copy_last_step(StepBackup& backup, ProcessGroup& group, int source);

}  // namespace ddprun::trainer
