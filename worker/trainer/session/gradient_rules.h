#pragma once

#include <cstddef>
#include <optional>

#include "worker/tensor/tensor.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/divided_state.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/session/step_values.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// The treatment of a step's reduced gradients before the optimizer has them: they are divided by the loss scale, a step
// with one that is not finite or with an outlier is skipped, and the rest is clipped. All ranks decide alike, as they
// have the same norm.
//
// Ownership: the constructor's arguments outlive this object. Threads: one at a time.
class GradientRules {
 public:
  GradientRules(const TrainConfig::Optim& config, TrainState& state, const DividedState& divided, StepValues& values)
      : config_(config), state_(state), divided_(divided), values_(values) {}

  // Finds out what the rules depend on. Changes gradients, and no part of the state. Collective. On a device everything
  // that it computes of the gradients is queued before the host waits for it, which it does once, and only if the step
  // itself depends on the values.
  void examine_on_host(StepResult& result);
  void examine_on_device(StepResult& result);
  // Applies the rules to what was found, and notes that in the result. Returns whether the step can be made.
  bool apply_on_host(StepResult& result);
  bool apply_on_device(StepResult& result);

 private:
  // Describes the reduced gradients of the step in progress.
  struct Findings {
    bool finite = true;
    double norm = 0;            // set with optim.skip_outliers
    double clipped_norm = 0;    // that of clipped values; on the host, and set with optim.clip_norm
    Tensor clipped_square_sum;  // the same on a device
    std::optional<std::size_t> place, clipped_place;  // those of the square sums among values_
  };
  bool is_accepted(StepResult& result);

  const TrainConfig::Optim& config_;
  TrainState& state_;
  const DividedState& divided_;
  StepValues& values_;
  Findings found_;
};

}  // namespace ddprun::trainer
