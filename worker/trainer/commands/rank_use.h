#pragma once

#include <cstddef>

#include "worker/parallel/forms/data_parallelism.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

class TrainSession;

// The memory, traffic and work of a rank in a step. Numbers of bytes, which are whole unless they are scaled. A trivial
// value, for memory that processes share.
struct RankUse {
  double parameters = 0;  // with buffers
  double gradients = 0;
  double optimizer = 0;
  double averages = 0;     // those of train.ema
  double copied = 0;       // of what it writes of a checkpoint in the background (checkpoint.background)
  double kept = 0;         // copies of checkpoint.peers: a rank's own and a neighbour's, of two steps
  double activations = 0;  // at the peak of forward and backward, with gradients that are not divided yet
  double gathered = 0;     // at the peak, of parameters that are gathered for their use (parallel.zero = 3)
  double shared_parameters = 0, shared_buffers = 0, shared_experts = 0;  // SharedBytes
  double sent_within = 0;                                                // sent_within_replica()
  double sent_for_update = 0;                                            // sent_for_update()
  double operations = 0;                                                 // of floating-point numbers; 0: not counted

  // Returns the bytes that exist at the peak of a step of a run that keeps no copies of its state.
  double memory_of_step() const { return parameters + gradients + optimizer + averages + activations + gathered; }
  // Returns the bytes that exist at the peak of a step.
  double memory() const { return memory_of_step() + copied + kept; }
};

// Takes the figures of a session that has made so many steps, except operations. The peaks are the largest of a step.
// Collective.
RankUse rank_use(const TrainConfig& config, TrainSession& session, std::size_t activation_peak, const ModelPeaks& peaks,
                 std::size_t steps);

}  // namespace ddprun::trainer
