#pragma once

#include <cstdint>
#include <limits>

#include "common/host_device.h"

// The rules by which a step of training changes nothing, for host and device alike: gradients that a loss scale has
// made infinite, and gradients whose norm is far above those of the steps before.
namespace ddprun::kernels {

struct LossScale {
  double scale;
  std::int64_t good_steps = 0;  // those in a row, since the scale has changed
};
struct LossScaleRule {
  double growth = 2;     // factor of the scale after growth_interval steps in a row with finite gradients
  double backoff = 0.5;  // factor of the scale after a step whose gradients are not finite
  std::int64_t growth_interval = 2000;
};

// Returns the scale of the next step. finite: whether this step's gradients are.
DDPRUN_HOST_DEVICE LossScale next_loss_scale(const LossScale& scale, const LossScaleRule& rule, bool finite) {
  if (!finite) return {.scale = scale.scale * rule.backoff};
  if (scale.good_steps + 1 < rule.growth_interval) return {scale.scale, scale.good_steps + 1};
  // A scale that float32 cannot hold would make every loss infinite.
  const double grown = scale.scale * rule.growth;
  return {.scale = grown <= static_cast<double>(std::numeric_limits<float>::max()) ? grown : scale.scale};
}

inline constexpr int norm_window = 100;  // the number of the last norms that an outlier is compared with
inline constexpr int first_norms = 10;   // the number of norms before there is a judgement

// Returns whether a norm is an outlier. count, median: those of the last norms. factor: how far above the median.
DDPRUN_HOST_DEVICE bool is_outlier(double norm, std::int64_t count, double median, double factor) {
  return count >= first_norms && !(norm <= factor * median);
}

// A CUDA device keeps this of a run's steps in its memory. All are float64, so that a tensor can hold them.
struct StepState {
  double loss_scale = 1, good_steps = 0;
  double made = 0, left_out = 0;              // the steps that changed the model, and those that did not
  double norms_seen = 0;                      // the finite norms so far; norm n is norms[n % norm_window]
  double lower_median = 0, upper_median = 0;  // the norms in the middle: two, or twice the same
  double norms[norm_window] = {};
};
inline constexpr std::int64_t step_state_size = sizeof(StepState) / sizeof(double);

// A run has these rules.
struct StepRules {
  bool has_loss_scale = false;
  LossScaleRule loss_scale = {};
  double outlier_factor = 0;  // 0: no outliers are looked for
};
// A device has found this of a step: pointers to its memory, or null.
struct StepFindings {
  const float* cancelled = nullptr;    // not 0: gradients are no averages
  const float* not_finite = nullptr;   // not 0: a gradient is infinite or NaN
  const double* square_sum = nullptr;  // that of the gradients
};

}  // namespace ddprun::kernels
