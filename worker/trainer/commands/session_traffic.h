#pragma once

#include <cstddef>

#include "worker/nn/module.h"
#include "worker/trainer/commands/step_traffic.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/parallel_forms.h"
#include "worker/trainer/session/train_session.h"

namespace ddprun::trainer {

// Returns what a step of this rank exchanges with the ranks that have other samples.
SharedBytes shared_bytes(const TrainConfig& config, const nn::Module& model, const ParallelForms& forms);

// Returns the bytes that this rank has sent in each of so many steps among the ranks that share samples or experts,
// whose number does not depend on that of all ranks.
std::size_t sent_within_replica(const ParallelForms& forms, std::size_t steps);

// Returns the bytes that a rank sends in an update of optim.name = muon, as the mean of the ranks that have any of the
// tensors: a matrix of which ranks have parts travels to its owner and back. Collective.
double sent_for_update(const TrainConfig& config, TrainSession& session);

}  // namespace ddprun::trainer
