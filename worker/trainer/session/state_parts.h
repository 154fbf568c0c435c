#pragma once

#include "worker/parallel/sharding/sharded_state.h"

namespace ddprun::trainer {

// The tensors of a run, with the placements of what the ranks update of each parameter and keep for it, and this rank's
// parts of them. What no rank shards is placed whole at all ranks: buffers, and parameters that are not trained.
//
// Ownership: handles on the memory of model, optimizer and averages; the session's group outlives it.
struct StateParts {
  sharding::ShardedState model;  // parameters, then buffers
  sharding::ShardedState optimizer;
  sharding::ShardedState averages;  // those of train.ema, also before they have begun; empty without

  // Returns whether rank 0 lacks some part of the state. The same at all ranks.
  bool are_divided() const;
};

}  // namespace ddprun::trainer
