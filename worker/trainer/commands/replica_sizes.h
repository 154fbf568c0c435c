#pragma once

#include "worker/trainer/config/train_config.h"

// How many neighbouring ranks of a job share what.
namespace ddprun::trainer {

// Returns the number of ranks that have parts of one model.
inline int ranks_of_model(const TrainConfig::Parallel& p) {
  return p.tensor * p.pipeline;
}
// Returns the number of ranks that have the same samples.
inline int ranks_of_sample(const TrainConfig::Parallel& p) {
  return ranks_of_model(p) * p.context;
}
// Returns the number of ranks that compute together; a job has one or more such sets.
inline int ranks_of_replica(const TrainConfig::Parallel& p) {
  return ranks_of_sample(p) * p.expert;
}

}  // namespace ddprun::trainer
