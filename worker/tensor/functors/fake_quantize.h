#pragma once

#include "worker/tensor/functors/arguments.h"
#include "worker/tensor/functors/math.h"

// Rounding to the levels of 8 bits while training: a function of one element, as unary.h describes.
namespace ddprun::functor {

// x rounded to a (level - b), with whole levels between c and d. The gradient passes straight through, but not where x
// is beyond the levels.
struct FakeQuantize {
  static constexpr Saves saves = Saves::input;
  explicit DDPRUN_HOST_DEVICE FakeQuantize(const Arguments& arguments)
      : scale(arguments.a), zero(arguments.b), lowest(arguments.c), highest(arguments.d) {}
  // Returns the level, which is not clamped yet.
  template <class T>
  DDPRUN_HOST_DEVICE T level(T x) const {
    return floor(x * (T(1) / static_cast<T>(scale)) + static_cast<T>(zero) + T(0.5));
  }
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    const T l = level(x), low = static_cast<T>(lowest), high = static_cast<T>(highest);
    return ((l < low ? low : l > high ? high : l) - static_cast<T>(zero)) * static_cast<T>(scale);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    const T l = level(x);
    return l < static_cast<T>(lowest) || l > static_cast<T>(highest) ? T(0) : grad;
  }
  double scale, zero, lowest, highest;
};

}  // namespace ddprun::functor
