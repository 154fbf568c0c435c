#pragma once

#include <cstdint>

#include "worker/tensor/functors/arguments.h"
#include "worker/tensor/functors/math.h"

// Functions of one element, each with its gradient: gradient(saved, grad) is grad times the derivative, where saved is
// the input or the output, as `saves` says. T is the type of computation: float or double. To add one: its struct, and
// its row in DDPRUN_UNARY_FUNCTORS at the end of this file. `transcendental` and `transcendental_gradient` mark
// functions that cost more than a look-up in a table; such a function has no arguments.
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

// A NaN stays one: a broken value has to be seen, not hidden.
struct Relu {
  static constexpr Saves saves = Saves::output;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return x < T(0) ? T(0) : x;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T y, T grad) const {
    return y > T(0) ? grad : T(0);
  }
};

struct Tanh {
  static constexpr Saves saves = Saves::output;
  static constexpr bool transcendental = true;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return tanh(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T y, T grad) const {
    return grad * (T(1) - y * y);
  }
};

struct Sigmoid {
  static constexpr Saves saves = Saves::output;
  static constexpr bool transcendental = true;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return sigmoid(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T y, T grad) const {
    return grad * y * (T(1) - y);
  }
};

// x sigmoid(x) (Elfwing et al. 2018; Ramachandran et al. 2017, "swish")
struct Silu {
  static constexpr Saves saves = Saves::input;
  static constexpr bool transcendental = true, transcendental_gradient = true;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return x * sigmoid(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    const T s = sigmoid(x);
    return grad * s * (T(1) + x * (T(1) - s));
  }
};

// x times the probability that a normal variable is below x (Hendrycks and Gimpel 2016).
struct Gelu {
  static constexpr Saves saves = Saves::input;
  static constexpr bool transcendental = true, transcendental_gradient = true;
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return T(0.5) * x * (T(1) + erf(x * T(0.70710678118654752440)));
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    const T below = T(0.5) * (T(1) + erf(x * T(0.70710678118654752440)));
    const T density = T(0.39894228040143267794) * exp(T(-0.5) * x * x);
    return grad * (below + x * density);
  }
};

// GELU with the probability approximated by tanh, as in GPT-2.
struct GeluTanh {
  static constexpr Saves saves = Saves::input;
  static constexpr bool transcendental = true, transcendental_gradient = true;
  // (1 + tanh(u)) / 2 = 1 / (1 + e^-2u): one exponential and no case distinction; an infinite one gives 0, as it
  // should.
  template <class T>
  DDPRUN_HOST_DEVICE static T share(T x) {
    const T u = T(0.79788456080286535588) * x * (T(1) + T(0.044715) * x * x);
    return T(1) / (T(1) + bounded_exp(T(-2) * u));
  }
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T x) const {
    return x * share(x);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient(T x, T grad) const {
    const T s = share(x);
    const T slope = T(2 * 0.79788456080286535588) * (T(1) + T(3 * 0.044715) * x * x);
    return grad * s * (T(1) + x * (T(1) - s) * slope);
  }
};

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

template <class Functor>
constexpr bool has_transcendental_value = requires {
  requires Functor::transcendental;
};
template <class Functor>
constexpr bool has_transcendental_gradient = requires {
  requires Functor::transcendental_gradient;
};

// The rows of the table of unary functions: name, functor.
// clang-format off
#define DDPRUN_UNARY_FUNCTORS(row) \
  row(scale, Scale) \
  row(shift, Shift) \
  row(abs, Abs) \
  row(exp, Exp) \
  row(log, Log) \
  row(sqrt, Sqrt) \
  row(pow, Pow) \
  row(clamp, Clamp) \
  row(relu, Relu) \
  row(tanh, Tanh) \
  row(sigmoid, Sigmoid) \
  row(silu, Silu) \
  row(gelu, Gelu) \
  row(gelu_tanh, GeluTanh) \
  row(fake_quantize, FakeQuantize)
  // clang-format on

#define DDPRUN_FUNCTOR_NAME(name, functor) name,
enum class Unary : std::uint8_t { DDPRUN_UNARY_FUNCTORS(DDPRUN_FUNCTOR_NAME) };
#undef DDPRUN_FUNCTOR_NAME

}  // namespace ddprun::functor
