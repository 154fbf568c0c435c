#pragma once

#include <type_traits>

#include "ddprun/common/host_device.h"

// Divisions that round up. REQUIRES: count >= 0, by >= 1, and that their sum is a value of the type.
namespace ddprun {

// Returns the number of parts of at most `by` each that `count` makes.
template <class T>
DDPRUN_HOST_DEVICE constexpr T divide_up(T count, std::type_identity_t<T> by) {
  return (count + by - 1) / by;
}

// Returns the smallest multiple of unit that is at least count.
template <class T>
DDPRUN_HOST_DEVICE constexpr T round_up(T count, std::type_identity_t<T> unit) {
  return divide_up(count, unit) * unit;
}

}  // namespace ddprun
