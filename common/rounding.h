#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "common/host_device.h"

namespace ddprun {

// Returns the number of parts of at most `by` each that `count` makes. REQUIRES: count >= 0, by >= 1, and their sum is
// a value of the type.
template <class T>
DDPRUN_HOST_DEVICE constexpr T divide_up(T count, std::type_identity_t<T> by) {
  return (count + by - 1) / by;
}

// Returns the smallest multiple of unit that is at least count. REQUIRES: as divide_up().
template <class T>
DDPRUN_HOST_DEVICE constexpr T round_up(T count, std::type_identity_t<T> unit) {
  return divide_up(count, unit) * unit;
}

// Returns the nearest integer, where a number beyond 1e18 counts as 1e18 of its sign; 0 for NaN. For numbers that
// another process sent: std::llround() is undefined for most doubles.
inline std::int64_t rounded(double value) {
  constexpr double largest = 1e18;
  if (std::isnan(value)) return 0;
  return std::llround(std::fmin(std::fmax(value, -largest), largest));
}

}  // namespace ddprun
