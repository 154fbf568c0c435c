#pragma once

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
// Ownership: the constructor's arguments outlive this object. Threads: one at a time; all methods are collective.
class GradientRules {
 public:
  GradientRules(const TrainConfig::Optim& config, TrainState& state, const DividedState& divided, StepValues& values)
      : config_(config), state_(state), divided_(divided), values_(values) {}

  // Both return whether the step can be made, and note in the result what they find.
  bool apply_on_host(StepResult& result);
  // Everything that the device computes of the gradients is queued before the host waits for it, which it does once,
  // and only if the step itself depends on the values.
  bool apply_on_device(StepResult& result);

 private:
  bool unscale(StepResult& result);
  bool accept(StepResult& result);
  void clip(StepResult& result) const;

  const TrainConfig::Optim& config_;
  TrainState& state_;
  const DividedState& divided_;
  StepValues& values_;
};

}  // namespace ddprun::trainer
