#pragma once

#include "worker/tensor/functors/arguments.h"
#include "worker/tensor/functors/math.h"

// Activations: functions of one element, as unary.h describes.
namespace ddprun::functor {

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

}  // namespace ddprun::functor
