#pragma once

#include <cstdint>

namespace ddprun {

// How the ranks' values become one. Sums and products of whole numbers wrap around; 16-bit floats are combined in
// float32. An average or a premultiplied sum needs floats, a bitwise operation whole numbers.
enum class ReduceOp : std::uint8_t { sum, average, product, min, max, bit_and, bit_or, bit_xor, premultiplied_sum };

// Made from a ReduceOp alone wherever one will do.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double factor = 1;  // of a premultiplied sum: what this rank's values are multiplied by first; ranks may differ

  constexpr Reduction() = default;
  constexpr Reduction(ReduceOp kind) : op(kind) {}  // NOLINT(google-explicit-constructor): ReduceOp::sum is enough
  static constexpr Reduction premultiplied_sum(double factor) {
    Reduction reduction(ReduceOp::premultiplied_sum);
    reduction.factor = factor;
    return reduction;
  }
};

}  // namespace ddprun
