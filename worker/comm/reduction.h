#pragma once

#include <cstdint>

namespace ddprun {

// The way in which the ranks' values are combined. Sums and products of integers wrap around; 16-bit floats are
// combined in float32. average and premultiplied_sum need floats, bitwise operations need integers.
enum class ReduceOp : std::uint8_t { sum, average, product, min, max, bit_and, bit_or, bit_xor, premultiplied_sum };

// A ReduceOp with its parameter; converts from a ReduceOp.
struct Reduction {
  ReduceOp op = ReduceOp::sum;
  double factor = 1;  // premultiplied_sum: multiplies this rank's values first; ranks may differ

  constexpr Reduction() = default;
  constexpr Reduction(ReduceOp kind) : op(kind) {}  // NOLINT(google-explicit-constructor): a conversion
  static constexpr Reduction premultiplied_sum(double factor) {
    Reduction reduction(ReduceOp::premultiplied_sum);
    reduction.factor = factor;
    return reduction;
  }
};

}  // namespace ddprun
