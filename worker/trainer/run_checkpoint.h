#pragma once

#include <optional>

#include "ddprun/worker/checkpoint/checkpoint.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/optim/optimizer.h"

// Between the live objects of a run and a checkpoint.
namespace ddprun::trainer {

// Handles to the run's memory: valid until the model or the optimizer changes or goes away.
checkpoint::Content content_of(const nn::Module& model, const optim::Optimizer& optimizer,
                               const checkpoint::RunState& state);

// Copies a checkpoint into the model and the optimizer. Throws Errc::mismatch naming the file and the tensor: one that
// is missing, has another shape or dtype, or that the model does not know.
void load(const checkpoint::Found& found, nn::Module& model, optim::Optimizer& optimizer);

// Rank 0's newest checkpoint, brought to every rank: its tensors are in model and optimizer, its state is the result.
// None when rank 0 has none. Only rank 0 touches the disk. Collective.
std::optional<checkpoint::RunState> resume(const checkpoint::Checkpoints* checkpoints, nn::Module& model,
                                           optim::Optimizer& optimizer, ProcessGroup& group);

}  // namespace ddprun::trainer
