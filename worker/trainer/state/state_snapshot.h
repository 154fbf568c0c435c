#pragma once

#include <memory>

#include "worker/checkpoint/snapshot.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// Returns a snapshot of a checkpoint's content, in which the buffers of the state are copied already, and the rest of
// the state, which changes only after TrainState::await_readers(), is to be copied. REQUIRES: WholeState::stays of the
// tensors in the content
std::shared_ptr<checkpoint::Snapshot> snapshot_of(checkpoint::Content content, const TrainState& state,
                                                  checkpoint::CopyMemory& memory);

}  // namespace ddprun::trainer
