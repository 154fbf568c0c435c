#pragma once

#include <chrono>
#include <string>

#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// Sets recovery.mode = restart, unless it was set, where a run that goes on in its processes would not end with the
// bits of an undisturbed one: with a hook that keeps an error, of which a lost rank's is lost with it if others have
// its part of the state.
void settle_recovery(Settings& settings, const TrainConfig& config);

// Returns why the run of these settings cannot go on in its processes when a rank is lost; empty if it can.
std::string why_not_in_process(const TrainConfig& config);

// Returns whether ranks have different parts of the state, or what they have depends on their place in the mesh: then
// another group needs as many of them.
bool has_sharded_state(const TrainConfig& config);

// Returns whether so many ranks fit the mesh of the job, and the groups of parallel.shard_group in it.
bool fits_mesh(const TrainConfig& config, int ranks);

// Returns whether recovery.mode = in_process and why_not_in_process() allows it.
bool recovers_in_process(const TrainConfig& config);

// Returns recovery.standby if another process of the program, started in advance, can go on as this run: a plugin may
// keep state in the process from the step before it, and the state of optim.offload is a file.
bool wants_standby(const TrainConfig& config);

// Returns whether the state can go to processes that are to join while training goes on: what changes it is the
// optimizer, and this of parameters one by one.
bool sends_state_ahead(const TrainConfig& config);

// Returns recovery.wait.
std::chrono::milliseconds recovery_bound(const TrainConfig& config);

}  // namespace ddprun::trainer
