#pragma once

#include <algorithm>
#include <vector>

namespace ddprun::bench {

// Returns the median, the upper one of two; 0 if there are no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace ddprun::bench
