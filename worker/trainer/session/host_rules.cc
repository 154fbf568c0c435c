#include <cmath>

#include "worker/optim/clip.h"
#include "worker/trainer/session/gradient_rules.h"

namespace ddprun::trainer {
namespace {

class HostRules final : public GradientRules {
 public:
  explicit HostRules(const RuleContext& context) : in_(context) {}

  // The gradients are averaged by now: what is not finite at one rank is so at all, except for those that are a rank's
  // own. All ranks decide alike about a step; each clips the gradient with which it updates.
  void examine(StepResult& result) override {
    found_ = {};
    if (auto& scaler = in_.state.scaler) {
      result.loss_scale = scaler->scale();
      found_.finite = scaler->unscale(in_.local.parameters(), in_.local.holds_at_all());
      if (!found_.finite) return;
    }
    if (in_.state.outliers) found_.norm = std::sqrt(in_.local.mean_square_sum());
    if (in_.config.clip_value > 0) optim::clip_grad_value(in_.local.parameters(), in_.config.clip_value);
    if (in_.config.clip_norm > 0) found_.clipped_norm = std::sqrt(in_.local.square_sum());
  }

  bool apply(StepResult& result) override {
    if (in_.state.outliers && found_.finite) result.grad_norm = found_.norm;
    if (!is_accepted(result)) return false;
    if (in_.config.clip_norm == 0) return true;
    optim::clip_grads_with_norm(in_.local.parameters(), in_.config.clip_norm, found_.clipped_norm);
    result.grad_norm = found_.clipped_norm;
    return true;
  }

 private:
  // Describes the reduced gradients of the step in progress.
  struct Findings {
    bool finite = true;
    double norm = 0;          // set with optim.skip_outliers
    double clipped_norm = 0;  // that of clipped values; set with optim.clip_norm
  };

  bool is_accepted(StepResult& result) {
    if (in_.state.scaler) {
      in_.state.scaler->update(found_.finite);
      result.skipped = !found_.finite;
    }
    if (in_.state.outliers && !result.skipped) result.skipped = in_.state.outliers->note(found_.norm);
    return !result.skipped;
  }

  const RuleContext in_;
  Findings found_;
};

}  // namespace

std::unique_ptr<GradientRules> make_host_rules(const RuleContext& context) {
  return std::make_unique<HostRules>(context);
}

}  // namespace ddprun::trainer
