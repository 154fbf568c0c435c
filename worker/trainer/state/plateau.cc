#include "worker/trainer/state/plateau.h"

#include <algorithm>
#include <cmath>

namespace ddprun::trainer {

void Plateau::note(double loss) {
  constexpr double smallest_reduction = 1e-8;
  if (std::isfinite(loss) && (!state_.best || loss < *state_.best * (1 - options_.threshold))) {
    state_.best = loss;
    state_.bad_evaluations = 0;
  } else {
    ++state_.bad_evaluations;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.bad_evaluations = 0;
  }
  if (state_.bad_evaluations <= options_.patience) return;
  const double reduced = std::max(state_.lr * options_.factor, options_.min_lr);
  if (state_.lr - reduced > smallest_reduction) state_.lr = reduced;
  state_.cooldown = options_.cooldown;
  state_.bad_evaluations = 0;
}

}  // namespace ddprun::trainer
