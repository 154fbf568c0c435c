#pragma once

#include "worker/checkpoint/run_state.h"
#include "worker/optim/plateau_options.h"

namespace ddprun::trainer {

// torch.optim.lr_scheduler.ReduceLROnPlateau for a loss (mode min, threshold_mode rel, eps 1e-8).
//
// Copies are independent. Threads: one at a time.
class Plateau {
 public:
  explicit Plateau(const optim::PlateauOptions& options) : options_(options), state_{.lr = options.lr} {}

  // To be called after an evaluation.
  void note(double loss);
  double lr() const { return state_.lr; }

  const checkpoint::Plateau& state() const { return state_; }
  void set_state(const checkpoint::Plateau& state) { state_ = state; }

 private:
  optim::PlateauOptions options_;
  checkpoint::Plateau state_;
};

}  // namespace ddprun::trainer
