#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// The data that a step exchanges between ranks, in bytes of a rank's model.
struct SharedBytes {
  std::size_t parameters = 0;  // float32, whose gradients are averaged
  std::size_t buffers = 0;     // those that rank 0 broadcasts
  std::size_t experts = 0;     // float32, those of a rank's part of parallel.expert
};

// Returns the bytes that one of so many ranks sends in an optimizer step of so many micro-batches, as the mean of the
// ranks, by the formulas of rings: an all-reduce of b bytes among n ranks sends 2 (n - 1) / n b, an all-gather, a
// reduce-scatter and a broadcast (n - 1) / n b. None for a communication hook whose bytes depend on more than their
// number, such as powersgd. A pure function.
std::optional<std::size_t> bytes_sent_in_step(const TrainConfig::Parallel& config, const SharedBytes& bytes,
                                              std::int64_t micro_batches, int ranks);

// Returns the micro-batches of a full step at the rank that has the most.
std::int64_t micro_batches_of_step(const TrainConfig& config, int ranks);

}  // namespace ddprun::trainer
