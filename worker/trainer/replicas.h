#pragma once

#include <string>

#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/trainer/train_session.h"

namespace ddprun::trainer {

// SHA-256 over the bytes of all parameters in the model's order: two runs with the same digest have the same parameters
// to the last bit.
std::string parameter_digest(const nn::Module& model);
// The same of parameters that may be divided among the ranks. Collective.
std::string parameter_digest(TrainSession& session);

// Compares the parameters of all ranks bit for bit. Throws Errc::mismatch at every rank, naming the step, the ranks
// that differ from rank 0 and the first parameter in which they do. Collective.
void check_replicas(TrainSession& session);

}  // namespace ddprun::trainer
