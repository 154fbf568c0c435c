#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/data/epoch_plan.h"

namespace ddprun::trainer {

// The number of optimizer steps that a run takes; pure arithmetic.
struct RunLength {
  data::EpochPlan plan;
  std::int64_t epochs = 1;
  std::int64_t max_steps = 0;  // 0: no limit

  // Returns those of the whole run, given that it is after `step` steps, in this epoch (0 is the first), of which
  // `done` samples are trained.
  std::int64_t total_steps(std::int64_t step, std::int64_t epoch, std::int64_t done) const {
    std::int64_t total = step;
    if (epoch < epochs) total += plan.steps_left(done) + (epochs - epoch - 1) * plan.steps_left(0);
    return max_steps > 0 ? std::max(step, std::min(total, max_steps)) : total;
  }
};

}  // namespace ddprun::trainer
