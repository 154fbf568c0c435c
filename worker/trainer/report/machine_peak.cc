#include "worker/trainer/report/machine_peak.h"

#include <algorithm>
#include <limits>

#include "worker/tensor/device_marks.h"
#include "worker/tensor/kernels.h"
#include "worker/trainer/session/stopwatch.h"

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

namespace {

// Returns the seconds of a product of square matrices: the best of some.
double seconds_of_product(std::int64_t side, Device device, DType dtype) {
  constexpr int runs = 4;
  const Shape shape{side, side};
  Tensor a = Tensor::empty(shape, dtype, device), b = Tensor::empty(shape, dtype, device);
  Tensor product = Tensor::empty(shape, dtype, device);
  a.fill(1);
  b.fill(1);
  DeviceMarks marks(device);
  marks.record();
  for (int run = 0; run < runs; ++run) {
    kernels::of(a).matmul(a, b, product, {});
    marks.record();
  }
  marks.end_step();
  const auto times = *marks.await_step();
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < times.size(); ++i) best = std::min(best, Seconds(times[i] - times[i - 1]).count());
  return std::max(best, 1e-9);
}

}  // namespace

double measure_peak_flops(Device device, DType dtype) {
  constexpr std::int64_t smallest = 64, largest = 8192;
  constexpr double long_enough = 1e-3;
  constexpr Seconds patience{0.05};             // the host's: an emulated device may be slower than its clock says
  seconds_of_product(smallest, device, dtype);  // allocates what is made once
  for (std::int64_t side = smallest;; side *= 2) {
    Stopwatch watch;
    const double seconds = seconds_of_product(side, device, dtype);
    const auto width = static_cast<double>(side);
    if (seconds >= long_enough || side == largest || watch.lap() > patience) return 2 * width * width * width / seconds;
  }
}

}  // namespace ddprun::trainer
