#include "ddprun/worker/trainer/machine_peak.h"

#include <algorithm>

#include "ddprun/worker/tensor/kernels.h"
#include "ddprun/worker/trainer/stopwatch.h"

namespace ddprun::trainer {

double measure_peak_flops() {
  constexpr std::int64_t side = 768;
  constexpr double flops = 2.0 * side * side * side;
  constexpr Seconds budget{0.1};
  Tensor a = Tensor::empty({side, side}), b = Tensor::empty({side, side}), product = Tensor::empty({side, side});
  a.fill(1);
  b.fill(1);
  double best = 0;
  Seconds spent{0};
  for (int run = 0; run < 3 || spent < budget; ++run) {
    Stopwatch watch;
    kernels::of(a).matmul(a, b, product, {});
    const Seconds passed = watch.lap();
    spent += passed;
    best = std::max(best, flops / std::max(passed.count(), 1e-9));
  }
  return best;
}

}  // namespace ddprun::trainer
