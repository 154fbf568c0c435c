#include "tests/bench/latency.h"

#include <algorithm>
#include <cmath>

namespace ddprun::bench {

void Latencies::add(const Latencies& others) {
  nanoseconds_.insert(nanoseconds_.end(), others.nanoseconds_.begin(), others.nanoseconds_.end());
}

double Latencies::quantile_us(double share) {
  if (nanoseconds_.empty()) return 0;
  const auto rank = static_cast<std::ptrdiff_t>(std::ceil(share * static_cast<double>(nanoseconds_.size()))) - 1;
  const auto place = nanoseconds_.begin() + std::max<std::ptrdiff_t>(rank, 0);
  std::nth_element(nanoseconds_.begin(), place, nanoseconds_.end());
  return static_cast<double>(*place) / 1000;
}

}  // namespace ddprun::bench
