#include "worker/trainer/recovery/copy_interval.h"

#include <algorithm>
#include <cmath>

namespace ddprun::trainer {
namespace {

constexpr double most_of_time = 0.02;
constexpr std::int64_t before_steps_are_measured = 10;  // the first steps are slow, and so are the first copies

}  // namespace

// The longer of two copies may have been disturbed.
void CopyInterval::copies_kept(std::int64_t step, double copying, double steps) {
  const auto count = step - last_;
  std::int64_t interval = before_steps_are_measured;
  if (count > 0 && steps > 0) {
    const double cost = previous_ > 0 ? std::min(copying, previous_) : copying;
    interval = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil(cost * static_cast<double>(count) / (most_of_time * steps))));
  }
  previous_ = copying;
  last_ = step;
  due_ = step + interval;
}

}  // namespace ddprun::trainer
