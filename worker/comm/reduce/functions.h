// The operations on two values, or on two vectors of them. They have internal linkage, like loops.h.
#pragma once

#include <type_traits>

#include "worker/comm/reduce/formats.h"
#include "worker/comm/reduction.h"

namespace ddprun::comm {
namespace {

enum class On { all, order, bits };

// For operations that do not compare, integers are converted to unsigned: the same bits, and overflow is defined.
struct Add {
  static constexpr On on = On::all;
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a + b);
  }
};
struct Multiply {
  static constexpr On on = On::all;
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a * b);
  }
};
struct Min {
  static constexpr On on = On::order;
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
struct Max {
  static constexpr On on = On::order;
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct And {
  static constexpr On on = On::bits;
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  static constexpr On on = On::bits;
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  static constexpr On on = On::bits;
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// Calls action(function) with the function that combines two values.
template <class Action>
[[gnu::always_inline]] inline void with_function(ReduceOp op, const Action& action) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
    case ReduceOp::premultiplied_sum:
      return action(Add());
    case ReduceOp::product:
      return action(Multiply());
    case ReduceOp::min:
      return action(Min());
    case ReduceOp::max:
      return action(Max());
    case ReduceOp::bit_and:
      return action(And());
    case ReduceOp::bit_or:
      return action(Or());
    case ReduceOp::bit_xor:
      return action(Xor());
  }
}

// The operation on a combined value.
struct Keep {
  template <class T>
  T operator()(T value) const {
    return value;
  }
};
template <class Value>
struct DivideBy {
  Value by;
  template <class T>
  T operator()(T value) const {
    return static_cast<T>(value / by);
  }
};
template <class Value>
struct MultiplyBy {
  Value by;
  template <class T>
  T operator()(T value) const {
    return static_cast<T>(value * by);
  }
};

// The format in which a function computes. Bitwise operations on floats are refused earlier; here they only have to
// compile.
template <class Format, class Function>
struct WorksIn {
  using Type = Format;
};
template <class T, class Function>
requires(std::is_integral_v<T>&& Function::on != On::order) struct WorksIn<Plain<T>, Function> {
  using Type = Plain<std::make_unsigned_t<T>>;
};
template <class Format, class Function>
concept Applies = Function::on != On::bits || std::is_integral_v<typename Format::Value>;

}  // namespace
}  // namespace ddprun::comm
