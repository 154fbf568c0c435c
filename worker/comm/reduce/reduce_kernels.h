#pragma once

#include <cstddef>
#include <span>

#include "worker/comm/reduce/variant.h"
#include "worker/comm/reduction.h"
#include "worker/comm/span.h"

namespace ddprun::comm {

// output[i] := op(left[i], right[i]); output may be left or right. average and premultiplied_sum only add: see
// prepare_reduction() and finish_reduction(). Integers wrap around. 16-bit floats are computed in float32 and rounded
// once per call.
void reduce(ReduceOp op, DType dtype, void* output, const void* left, const void* right, std::size_t count);

// Each output[i] := op over inputs[k][i] in the order of k, where the inputs are those of all ranks: an average is
// divided too. The outputs may be among the inputs. 16-bit floats are combined in float32 and rounded once, an average
// twice.
inline void reduce_all(ReduceOp op, DType dtype, std::span<void* const> outputs, std::span<const void* const> inputs,
                       std::size_t count) {
  const int divisor = op == ReduceOp::average ? static_cast<int>(inputs.size()) : 1;
  kernels().reduce(op, dtype, outputs.data(), outputs.size(), inputs.data(), inputs.size(), count, divisor);
}

// Returns whether a rank's values have to be multiplied before they are combined.
constexpr bool needs_preparation(ReduceOp op) {
  return op == ReduceOp::premultiplied_sum;
}
// Returns the type of prepared values: float32 for 16-bit floats, so that their products and sum are rounded once.
constexpr DType prepared_type(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 ? DType::float32 : dtype;
}
// Multiplies by this rank's factor. output: has the prepared type; may be the input if that has the same type.
void prepare_reduction(double factor, ConstSpan input, void* output);
// Converts combined prepared values to the type of output, which may be the same memory if the type is the same.
void finish_prepared(const void* values, Span output);

// Divides the combined values if op is an average.
void finish_reduction(ReduceOp op, Span values, int ranks);

}  // namespace ddprun::comm
