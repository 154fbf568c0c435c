#pragma once

#include <cstdint>

#include "worker/tensor/functors/arguments.h"
#include "worker/tensor/functors/math.h"

// Functions of two elements, each with its gradients: gradient_a(a, b, grad) and gradient_b(a, b, grad) are grad times
// the derivative by that operand. T is the type of computation: float or double. To add one: its struct, and its row in
// DDPRUN_BINARY_FUNCTORS at the end of this file.
namespace ddprun::functor {

struct Add {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T, T, T grad) const {
    return grad;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T, T, T grad) const {
    return grad;
  }
};

struct Subtract {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return a - b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T, T, T grad) const {
    return grad;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T, T, T grad) const {
    return -grad;
  }
};

struct Multiply {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return a * b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T, T b, T grad) const {
    return grad * b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T a, T, T grad) const {
    return grad * a;
  }
};

struct Divide {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return a / b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T, T b, T grad) const {
    return grad / b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T a, T b, T grad) const {
    return -grad * a / (b * b);
  }
};

// Equal operands share the gradient, as in PyTorch.
struct Maximum {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return is_nan(a) || a > b ? a : b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T a, T b, T grad) const {
    return a > b ? grad : a == b ? grad / T(2) : T(0);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T a, T b, T grad) const {
    return b > a ? grad : a == b ? grad / T(2) : T(0);
  }
};

struct Minimum {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return is_nan(a) || a < b ? a : b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T a, T b, T grad) const {
    return a < b ? grad : a == b ? grad / T(2) : T(0);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T a, T b, T grad) const {
    return b < a ? grad : a == b ? grad / T(2) : T(0);
  }
};

// Losses of an input a and a target b, element by element; none has a gradient to its target.

// The loss is quadratic within a distance of beta, linear beyond (Girshick 2015).
struct SmoothL1 {
  explicit DDPRUN_HOST_DEVICE SmoothL1(const Arguments& arguments) : beta(arguments.a) {}
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    const T distance = abs(a - b), limit = static_cast<T>(beta);
    return distance < limit ? T(0.5) * distance * distance / limit : distance - T(0.5) * limit;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T a, T b, T grad) const {
    const T difference = a - b, limit = static_cast<T>(beta);
    const T sign = difference > T(0) ? T(1) : difference < T(0) ? T(-1) : T(0);
    return grad * (abs(difference) < limit ? difference / limit : sign);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T, T, T) const {
    return T(0);
  }
  double beta;
};

// The loss of a probability a. Logarithms are at least -100 and the denominator is at least 1e-12, as in PyTorch.
struct BinaryCrossEntropy {
  template <class T>
  DDPRUN_HOST_DEVICE static T bounded_log(T x) {
    const T value = log(x);
    return value < T(-100) ? T(-100) : value;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return -(b * bounded_log(a) + (T(1) - b) * bounded_log(T(1) - a));
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T a, T b, T grad) const {
    const T denominator = a * (T(1) - a);
    return grad * (a - b) / (denominator < T(1e-12) ? T(1e-12) : denominator);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T, T, T) const {
    return T(0);
  }
};

// The loss of a logit a: -b log(sigmoid(a)) - (1 - b) log(1 - sigmoid(a)), without overflow.
struct BinaryCrossEntropyWithLogits {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return (a > T(0) ? a : T(0)) - a * b + log(T(1) + exp(-abs(a)));
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T a, T b, T grad) const {
    return grad * (sigmoid(a) - b);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T, T, T) const {
    return T(0);
  }
};

// b (log(b) - a): the term of the Kullback-Leibler divergence of a log-probability a from a probability b; 0 where b
// is.
struct KlDivergence {
  template <class T>
  DDPRUN_HOST_DEVICE T operator()(T a, T b) const {
    return b > T(0) ? b * (log(b) - a) : T(0);
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_a(T, T b, T grad) const {
    return -grad * b;
  }
  template <class T>
  DDPRUN_HOST_DEVICE T gradient_b(T, T, T) const {
    return T(0);
  }
};

// The rows of the table of binary functions: name, functor.
// clang-format off
#define DDPRUN_BINARY_FUNCTORS(row) \
  row(add, Add) \
  row(subtract, Subtract) \
  row(multiply, Multiply) \
  row(divide, Divide) \
  row(maximum, Maximum) \
  row(minimum, Minimum) \
  row(smooth_l1, SmoothL1) \
  row(binary_cross_entropy, BinaryCrossEntropy) \
  row(binary_cross_entropy_with_logits, BinaryCrossEntropyWithLogits) \
  row(kl_divergence, KlDivergence)

// Comparisons, 1 where true: name, C++ operator.
#define DDPRUN_COMPARISONS(row) \
  row(equal, ==) \
  row(not_equal, !=) \
  row(less, <) \
  row(less_equal, <=) \
  row(greater, >) \
  row(greater_equal, >=)
// clang-format on

#define DDPRUN_FUNCTOR_NAME(name, functor) name,
enum class Binary : std::uint8_t { DDPRUN_BINARY_FUNCTORS(DDPRUN_FUNCTOR_NAME) };
enum class Comparison : std::uint8_t { DDPRUN_COMPARISONS(DDPRUN_FUNCTOR_NAME) };
#undef DDPRUN_FUNCTOR_NAME

}  // namespace ddprun::functor
