#pragma once

#include <cstdint>

#include "worker/checkpoint/run_state.h"

namespace ddprun::trainer {

// torch.optim.lr_scheduler.ReduceLROnPlateau for a loss (mode min, threshold_mode rel, eps 1e-8).
struct PlateauOptions {
  double lr = 1e-3;            // the first rate
  double factor = 0.1;         // that of each reduction
  std::int64_t patience = 10;  // so many evaluations without an improvement are tolerated
  double threshold = 1e-4;     // an improvement is a loss below the best times 1 - threshold
  std::int64_t cooldown = 0;   // so many evaluations after a reduction count for nothing
  double min_lr = 0;
};

// Copies are independent. Threads: one at a time.
class Plateau {
 public:
  explicit Plateau(const PlateauOptions& options) : options_(options), state_{.lr = options.lr} {}

  // To be called after an evaluation.
  void note(double loss);
  double lr() const { return state_.lr; }

  const checkpoint::Plateau& state() const { return state_; }
  void set_state(const checkpoint::Plateau& state) { state_ = state; }

 private:
  PlateauOptions options_;
  checkpoint::Plateau state_;
};

}  // namespace ddprun::trainer
