#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "worker/checkpoint/run_state.h"
#include "worker/digest/sha256.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/session/step_backup.h"
#include "worker/trainer/state/run_checkpoint.h"
#include "tests/unit/trainer/sessions.h"

// The state of a run of which every rank has all: its digest, and steps that change it.
namespace ddprun::testing {

inline void add(Sha256& hash, const optim::NamedTensors& tensors) {
  for (const auto& [name, tensor] : tensors)
    hash.update(std::string_view(static_cast<const char*>(tensor.raw()), tensor.bytes()));
}

// Digests all that a later step depends on.
inline std::string digest(const trainer::TrainState& state) {
  Sha256 hash;
  add(hash, trainer::tensors_of(*state.model));
  add(hash, state.optimizer->state());
  if (state.ema) add(hash, state.ema->averages());
  auto run = state.run;
  run.world_size = 0;  // this value and the next one are a session's
  run.batch_size = 0;
  hash.update(checkpoint::to_json(run));
  if (state.scaler) hash.update(std::to_string(state.scaler->scale()) + " ");
  hash.update(std::to_string(state.optimizer->step_count()));
  return hash.hex();
}

inline std::unique_ptr<trainer::Session> session_of(Replica& replica, ProcessGroup& group) {
  return trainer::make_session(
      {.config = replica.config, .datasets = replica.datasets, .task = *replica.task, .recovers = true}, replica.state,
      group);
}

inline void make_steps(trainer::Session& session, trainer::StepBackup& backup, int count) {
  for (int i = 0; i < count; ++i) backup.end_step(session.step(false));
}

}  // namespace ddprun::testing
