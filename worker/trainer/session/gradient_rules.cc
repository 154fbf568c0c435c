#include "worker/trainer/session/gradient_rules.h"

#include <cmath>
#include <cstddef>
#include <optional>

#include "worker/optim/clip.h"

namespace ddprun::trainer {

bool GradientRules::apply_on_device(StepResult& result) {
  auto& late = values_.late();
  auto& scaler = state_.scaler;
  auto& outliers = state_.outliers;
  std::optional<std::size_t> not_finite, square_sum, clipped_square_sum;
  if (scaler) {
    result.loss_scale = scaler->scale();
    not_finite = late.add(scaler->unscale_there(divided_.parameters()));
  }
  if (outliers) square_sum = late.add(optim::grad_square_sum_there(divided_.parameters()));
  if (config_.clip_value > 0) optim::clip_grad_value(divided_.parameters(), config_.clip_value);
  Tensor to_clip_by;
  if (config_.clip_norm > 0) {
    to_clip_by = optim::grad_square_sum_there(divided_.parameters());
    clipped_square_sum = late.add(to_clip_by);
  }
  if (scaler || outliers) late.wait();
  if (scaler) {
    result.skipped = late.at(*not_finite) != 0;
    scaler->update(!result.skipped);
    if (result.skipped) return false;
  }
  values_.set_square_sum(square_sum);
  if (outliers) {
    result.skipped = outliers->note(std::sqrt(late.at(*square_sum)));
    if (result.skipped) return false;
  }
  if (!to_clip_by.defined()) return true;
  values_.set_square_sum(clipped_square_sum);
  optim::clip_grads_with_square_sum(divided_.parameters(), config_.clip_norm, to_clip_by);
  return true;
}

bool GradientRules::apply_on_host(StepResult& result) {
  if (!unscale(result) || !accept(result)) return false;
  clip(result);
  return true;
}

// Returns whether the step can be made. The gradients are averaged by now: what is not finite at one rank is so at all,
// except for those that are a rank's own.
bool GradientRules::unscale(StepResult& result) {
  auto& scaler = state_.scaler;
  if (!scaler) return true;
  result.loss_scale = scaler->scale();
  result.skipped = !scaler->unscale(divided_.parameters(), divided_.holds_at_all());
  scaler->update(!result.skipped);
  return !result.skipped;
}

// The norm is that of the average, so all ranks accept alike.
bool GradientRules::accept(StepResult& result) {
  auto& outliers = state_.outliers;
  if (!outliers) return true;
  const double norm = std::sqrt(divided_.square_sum());
  result.grad_norm = norm;
  result.skipped = outliers->note(norm);
  return !result.skipped;
}

// The gradients are averaged by now, so all ranks clip alike.
void GradientRules::clip(StepResult& result) const {
  if (config_.clip_value > 0) optim::clip_grad_value(divided_.parameters(), config_.clip_value);
  if (config_.clip_norm == 0) return;
  const double norm = std::sqrt(divided_.square_sum());
  optim::clip_grads_with_norm(divided_.parameters(), config_.clip_norm, norm);
  result.grad_norm = norm;
}

}  // namespace ddprun::trainer
