#pragma once

#include <cmath>
#include <cstdint>

namespace ddprun {

// Returns the nearest integer, where a number beyond 1e18 counts as 1e18 of its sign; 0 for NaN. For numbers that
// another process sent: std::llround() is undefined for most doubles.
inline std::int64_t rounded(double value) {
  constexpr double largest = 1e18;
  if (std::isnan(value)) return 0;
  return std::llround(std::fmin(std::fmax(value, -largest), largest));
}

}  // namespace ddprun
