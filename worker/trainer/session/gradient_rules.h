#pragma once

#include <memory>

#include "worker/trainer/config/train_config.h"
#include "worker/trainer/session/local_state.h"
#include "worker/trainer/session/session.h"
#include "worker/trainer/session/step_values.h"
#include "worker/trainer/session/update_gate.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// The treatment of a step's reduced gradients before the optimizer has them: they are divided by the loss scale, a step
// with one that is not finite or with an outlier is skipped, and the rest is clipped. All ranks decide alike, as they
// have the same norm.
//
// Threads: one at a time. Errors: those of the device and the group.
class GradientRules {
 public:
  virtual ~GradientRules() = default;
  GradientRules(const GradientRules&) = delete;
  GradientRules& operator=(const GradientRules&) = delete;

  // To be called before the passes of a step.
  virtual void begin_step() {}
  // Finds out what the rules depend on. Changes gradients, and no part of the state. Collective.
  virtual void examine(StepResult& result) = 0;
  // Applies the rules to what was found. Returns whether the update is to be made; the device may leave it out then.
  virtual bool apply(StepResult& result) = 0;

 protected:
  GradientRules() = default;
};

// Both kinds of rules work with these, which outlive them.
struct RuleContext {
  const TrainConfig::Optim& config;
  TrainState& state;
  const LocalState& local;
  StepValues& values;
  UpdateGate* gate;  // null: there is none
};

// Makes the rules for the devices where the model begins and where its losses are.
std::unique_ptr<GradientRules> make_gradient_rules(const RuleContext& context, Device device, Device device_of_losses);
// These make the two kinds from which it chooses. On a CUDA device everything is queued, the decision too: the host
// waits for nothing.
std::unique_ptr<GradientRules> make_host_rules(const RuleContext& context);
std::unique_ptr<GradientRules> make_device_rules(const RuleContext& context, Device device, Device device_of_losses);

}  // namespace ddprun::trainer
