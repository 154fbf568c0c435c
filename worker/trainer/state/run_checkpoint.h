#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/checkpoint.h"
#include "worker/comm/process_group.h"
#include "worker/nn/module.h"
#include "worker/optim/optimizer.h"
#include "worker/parallel/stored/load.h"
#include "worker/reducer/comm_hook.h"
#include "worker/trainer/config/resume.h"
#include "worker/trainer/state/train_state.h"

// Copies a run's model, optimizer, communication hook and state into a checkpoint and back.
namespace ddprun::trainer {

// The tensors of a run, whole, under the names of the whole model.
struct WholeState {
  optim::NamedTensors model;  // parameters, then buffers
  optim::NamedTensors optimizer;
  optim::NamedTensors averages = {};  // train.ema: those of the parameters; empty if there are none, or none yet
  // True if the tensors, except buffers, keep their values until TrainState::await_readers() is called. Otherwise they
  // are valid only as long as their source says.
  bool stays = false;
};

// Returns views of the run's memory: valid until the model or the optimizer's state changes or is destroyed.
checkpoint::Content content_of(const WholeState& whole, const checkpoint::RunState& state);

// Returns parameters, then buffers.
optim::NamedTensors tensors_of(const nn::Module& model);
// Returns all tensors of a run that a rank has, also averages that have not begun: the whole state if ranks divide
// nothing. Together with TrainState::run, these are all that a later step depends on.
WholeState tensors_of(const TrainState& state);

struct ResumeOptions {
  checkpoint::Checkpoints* checkpoints;  // those that this rank sees, in a folder of the same name at all ranks
  Resume resume = Resume::automatic;
  const std::map<std::string, std::string>& settings;  // those of this run, as in RunState::config
  std::optional<std::int64_t> epoch_samples = {};      // those of this run's data set; none if unknown
};

// The memory of a run's parts, into which a checkpoint is read.
struct PartsTarget {
  stored::LoadTarget model, optimizer;
  stored::LoadTarget averages;  // empty without train.ema
};

// Called at every rank once its parts, or otherwise rank 0's tensors, are those of a checkpoint: spreads the values to
// all memory that depends on them. has_averages: whether averages were read. Returns the own state of this rank, which
// is restored after that.
using Distribute = std::function<std::vector<HookState>(bool has_averages)>;

// Resumes from the newest checkpoint, of any layout, of whose files each is seen by some rank: its tensors go to the
// memory of whole at rank 0, and distribute copies them to the others; each rank's own state goes to that rank. Returns
// the result at all ranks; none for a start at step 0. A checkpoint without averages leaves them as they are, with a
// warning. parts: if set, the tensors go to these parts instead, those that each rank has. Each file is read by one
// rank that sees it, and sent to those that do not. Errors: Errc::mismatch naming the settings that have changed, and
// the file and the tensor: one that is missing, has another shape or dtype, or that the model does not know; Errc::io
// for a position beyond the data set, if its settings are those of the checkpoint; those of Checkpoints::newest(), and
// Errc::usage when a checkpoint is required and there is none. Collective.
std::optional<checkpoint::RunState> resume(const ResumeOptions& options, const WholeState& whole, ProcessGroup& group,
                                           const Distribute& distribute = {}, const PartsTarget* parts = nullptr);

}  // namespace ddprun::trainer
