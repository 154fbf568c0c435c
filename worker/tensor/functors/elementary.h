#pragma once

#include "worker/tensor/functors/arguments.h"
#include "worker/tensor/functors/math.h"

// Arithmetic, powers, exponentials and logarithms: functions of one element, as unary.h describes.
namespace ddprun::functor {

// a x
struct Scale {
  static constexpr Saves saves = Saves::nothing;
  explicit DDPRUN_HOST_DEVICE Scale(const Arguments& arguments) : a(arguments.a) {}
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return x * static_cast<T>(a);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T, T grad) const {
    return grad * static_cast<T>(a);
  }
  double a;
};

// x + a
struct Shift {
  static constexpr Saves saves = Saves::nothing;
  explicit DDPRUN_HOST_DEVICE Shift(const Arguments& arguments) : a(arguments.a) {}
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return x + static_cast<T>(a);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T, T grad) const {
    return grad;
  }
  double a;
};

struct Abs {
  static constexpr Saves saves = Saves::input;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return abs(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    return x > T(0) ? grad : x < T(0) ? -grad : T(0);
  }
};

struct Exp {
  static constexpr Saves saves = Saves::output;
  static constexpr bool transcendental = true;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return exp(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T y, T grad) const {
    return grad * y;
  }
};

struct Log {
  static constexpr Saves saves = Saves::input;
  static constexpr bool transcendental = true;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return log(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    return grad / x;
  }
};

struct Sqrt {
  static constexpr Saves saves = Saves::output;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return sqrt(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T y, T grad) const {
    return grad / (y + y);
  }
};

// x^a
struct Pow {
  static constexpr Saves saves = Saves::input;
  explicit DDPRUN_HOST_DEVICE Pow(const Arguments& arguments) : a(arguments.a) {}
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return pow(x, static_cast<T>(a));
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    return a == 0 ? T(0) : grad * static_cast<T>(a) * pow(x, static_cast<T>(a - 1));
  }
  double a;
};

// Limits x to [a, b].
struct Clamp {
  static constexpr Saves saves = Saves::input;
  explicit DDPRUN_HOST_DEVICE Clamp(const Arguments& arguments) : a(arguments.a), b(arguments.b) {}
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return x < static_cast<T>(a) ? static_cast<T>(a) : x > static_cast<T>(b) ? static_cast<T>(b) : x;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    return x < static_cast<T>(a) || x > static_cast<T>(b) ? T(0) : grad;
  }
  double a, b;
};

}  // namespace ddprun::functor
