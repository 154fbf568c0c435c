#pragma once

#include <cstdint>

namespace ddprun::optim {

// The options of PyTorch's ReduceLROnPlateau, with its names and defaults.
struct PlateauOptions {
  double lr = 1e-3;            // the first rate
  double factor = 0.1;         // that of each reduction
  std::int64_t patience = 10;  // so many evaluations without an improvement are tolerated
  double threshold = 1e-4;     // an improvement is a loss below the best times 1 - threshold
  std::int64_t cooldown = 0;   // so many evaluations after a reduction count for nothing
  double min_lr = 0;
};

}  // namespace ddprun::optim
