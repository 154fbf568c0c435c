#include "worker/tensor/cuda/module/grid.h"
#include "worker/tensor/cuda/module/optimizer.h"
#include "worker/tensor/cuda/module/views.h"
#include "worker/tensor/functors/math.h"
#include "worker/tensor/step_rules.h"

// The decision whether a step changes the model, made where the gradients are.
namespace ddprun::cuda {
namespace {

using kernels::StepFindings;
using kernels::StepRules;
using kernels::StepState;

// Does what optim::OutlierFilter::note() does.
__device__ bool note_norm(StepState& state, double norm, double factor) {
  const auto seen = static_cast<std::int64_t>(state.norms_seen);
  const bool outlier = kernels::is_outlier(norm, seen, (state.lower_median + state.upper_median) / 2, factor);
  if (norm - norm != 0) return outlier;
  state.norms[seen % kernels::norm_window] = norm;
  state.norms_seen += 1;
  return outlier;
}

__device__ void update_loss_scale(StepState& state, const kernels::LossScaleRule& rule, bool finite) {
  const auto next =
      kernels::next_loss_scale({state.loss_scale, static_cast<std::int64_t>(state.good_steps)}, rule, finite);
  state.loss_scale = next.scale;
  state.good_steps = static_cast<double>(next.good_steps);
}

// One thread is enough. A step that was cancelled leaves the state as it is: the run ends.
__global__ void __launch_bounds__(1)
    decide_kernel(const __grid_constant__ StepRules rules, const __grid_constant__ StepFindings found, StepState* state,
                  float* loss_scale, float* skip) {
  if (found.cancelled != nullptr && *found.cancelled != 0) {
    *skip = 1;
    return;
  }
  const bool finite = found.not_finite == nullptr || *found.not_finite == 0;
  if (rules.has_loss_scale) update_loss_scale(*state, rules.loss_scale, finite);
  bool skipped = !finite;
  if (rules.outlier_factor > 0 && finite)
    skipped = note_norm(*state, functor::sqrt(*found.square_sum), rules.outlier_factor);
  state->made += skipped ? 0 : 1;
  state->left_out += skipped ? 1 : 0;
  *loss_scale = static_cast<float>(state->loss_scale);
  *skip = skipped ? 1.0F : 0.0F;
}

// Finds the median of the last norms: each thread counts the norms before its own in their order.
__global__ void __launch_bounds__(block_threads) find_median_kernel(StepState* state) {
  const auto seen =
      static_cast<int>(state->norms_seen < kernels::norm_window ? state->norms_seen : kernels::norm_window);
  const auto own = static_cast<int>(threadIdx.x);
  if (own >= seen) return;
  const double norm = state->norms[own];
  int before = 0;
  for (int i = 0; i < seen; ++i) {
    const double other = state->norms[i];
    before += other < norm || (other == norm && i < own) ? 1 : 0;
  }
  if (before == (seen - 1) / 2) state->lower_median = norm;
  if (before == seen / 2) state->upper_median = norm;
}

}  // namespace

void decide_step(DeviceContext& device, const StepRules& rules, const StepFindings& found, const View& state,
                 const View& loss_scale, const View& skip) {
  static_assert(block_threads >= kernels::norm_window);
  auto* const at = writable<StepState>(state);
  launch(device, decide_kernel, 1, 1, 0, rules, found, at, writable<float>(loss_scale), writable<float>(skip));
  if (rules.outlier_factor > 0) launch(device, find_median_kernel, 1, block_threads, 0, at);
}

}  // namespace ddprun::cuda
