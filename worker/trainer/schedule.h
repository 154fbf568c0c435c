#pragma once

#include <algorithm>
#include <cstdint>

namespace ddprun::trainer {

// How many optimizer steps a run takes; pure arithmetic.
struct Schedule {
  std::int64_t samples_per_rank = 0;  // of an epoch
  std::int64_t batch_size = 1;        // per rank and micro-batch
  std::int64_t accumulate = 1;        // micro-batches a step
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;  // 0: no limit

  // To finish an epoch of which a rank has done so many samples.
  std::int64_t steps_to_epoch_end(std::int64_t samples_done) const {
    const auto step = batch_size * accumulate;
    return (samples_per_rank - samples_done + step - 1) / step;
  }
  // Of the whole run, given that it is after `step` steps, in this epoch (0 is the first), behind so many samples of a
  // rank.
  std::int64_t total_steps(std::int64_t step, std::int64_t epoch, std::int64_t samples_done) const {
    std::int64_t total = step;
    if (epoch < epochs) total += steps_to_epoch_end(samples_done) + (epochs - epoch - 1) * steps_to_epoch_end(0);
    return max_steps > 0 ? std::max(step, std::min(total, max_steps)) : total;
  }
};

}  // namespace ddprun::trainer
