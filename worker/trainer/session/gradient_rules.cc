#include "worker/trainer/session/gradient_rules.h"

#include <cmath>
#include <cstddef>
#include <optional>

#include "worker/optim/clip.h"

namespace ddprun::trainer {

void GradientRules::examine_on_device(StepResult& result) {
  auto& late = values_.late();
  found_ = {};
  std::optional<std::size_t> not_finite;
  if (state_.scaler) {
    result.loss_scale = state_.scaler->scale();
    not_finite = late.add(state_.scaler->unscale_there(divided_.parameters()));
  }
  if (state_.outliers) found_.place = late.add(optim::grad_square_sum_there(divided_.parameters()));
  if (config_.clip_value > 0) optim::clip_grad_value(divided_.parameters(), config_.clip_value);
  if (config_.clip_norm > 0) {
    found_.clipped_square_sum = optim::grad_square_sum_there(divided_.parameters());
    found_.clipped_place = late.add(found_.clipped_square_sum);
  }
  if (!state_.scaler && !state_.outliers) return;
  late.wait();
  if (not_finite) found_.finite = late.at(*not_finite) == 0;
  if (found_.place) found_.norm = std::sqrt(late.at(*found_.place));
}

bool GradientRules::apply_on_device(StepResult& result) {
  if (found_.finite) values_.set_square_sum(found_.place);
  if (!is_accepted(result)) return false;
  if (!found_.clipped_place) return true;
  values_.set_square_sum(found_.clipped_place);
  optim::clip_grads_with_square_sum(divided_.parameters(), config_.clip_norm, found_.clipped_square_sum);
  return true;
}

// The gradients are averaged by now: what is not finite at one rank is so at all, except for those that are a rank's
// own. The norms are those of the average.
void GradientRules::examine_on_host(StepResult& result) {
  found_ = {};
  if (auto& scaler = state_.scaler) {
    result.loss_scale = scaler->scale();
    found_.finite = scaler->unscale(divided_.parameters(), divided_.holds_at_all());
    if (!found_.finite) return;
  }
  if (state_.outliers) found_.norm = std::sqrt(divided_.square_sum());
  if (config_.clip_value > 0) optim::clip_grad_value(divided_.parameters(), config_.clip_value);
  if (config_.clip_norm > 0) found_.clipped_norm = std::sqrt(divided_.square_sum());
}

bool GradientRules::apply_on_host(StepResult& result) {
  if (state_.outliers && found_.finite) result.grad_norm = found_.norm;
  if (!is_accepted(result)) return false;
  if (config_.clip_norm == 0) return true;
  optim::clip_grads_with_norm(divided_.parameters(), config_.clip_norm, found_.clipped_norm);
  result.grad_norm = found_.clipped_norm;
  return true;
}

bool GradientRules::is_accepted(StepResult& result) {
  if (state_.scaler) {
    state_.scaler->update(found_.finite);
    result.skipped = !found_.finite;
  }
  if (state_.outliers && !result.skipped) result.skipped = state_.outliers->note(found_.norm);
  return !result.skipped;
}

}  // namespace ddprun::trainer
