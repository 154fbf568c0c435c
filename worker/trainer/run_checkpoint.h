#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/worker/checkpoint/checkpoint.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/optim/optimizer.h"
#include "ddprun/worker/reducer/comm_hook.h"

// Copies a run's model, optimizer, communication hook and state into a checkpoint and back.
namespace ddprun::trainer {

// Views of the run's memory: valid until the model or the optimizer's state changes or is destroyed.
checkpoint::Content content_of(const optim::NamedTensors& model, const optim::NamedTensors& optimizer_state,
                               const checkpoint::RunState& state);

// Parameters, then buffers.
optim::NamedTensors tensors_of(const nn::Module& model);

// checkpoint.resume: "auto" starts from the newest checkpoint that is whole, or from step 0 when there is none; "never"
// starts from step 0; "require" fails when there is no checkpoint; "best" starts from the one with the best evaluation,
// and fails when there is none. Checkpoints of which none is whole are an error, except to "never".
enum class Resume { automatic, never, require, best };
Resume resume_from_name(std::string_view name);  // REQUIRES: one of resume_names()
std::vector<std::string> resume_names();

struct ResumeOptions {
  checkpoint::Checkpoints* checkpoints = nullptr;  // at rank 0; null: no checkpoints
  Resume resume = Resume::automatic;
  const std::map<std::string, std::string>& settings;  // of this run, as in RunState::config: for error messages
};

// Rank 0's newest checkpoint: its model and its optimizer state are in the tensors given at rank 0, from where the
// caller takes them to the others; the hook's state is at every rank, and so is the run state, the result. None when
// the run starts from step 0. Only rank 0 touches the disk. Errors: Errc::mismatch naming the settings that have
// changed, and the file and the tensor: one that is missing, has another shape or dtype, or that the model does not
// know; those of Checkpoints::newest(), and Errc::io when a checkpoint is required and there is none. Collective.
std::optional<checkpoint::RunState> resume(const ResumeOptions& options, const optim::NamedTensors& model,
                                           const optim::NamedTensors& optimizer_state, ProcessGroup& group,
                                           const std::vector<HookState>& hook = {});

}  // namespace ddprun::trainer
