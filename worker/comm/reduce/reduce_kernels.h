#pragma once

#include <cstddef>
#include <span>

#include "ddprun/worker/comm/reduction.h"
#include "ddprun/worker/comm/span.h"

namespace ddprun::comm {

// output[i] := op(left[i], right[i]); output may be left or right. Average and premultiplied sum add: see
// prepare_reduction and finish_reduction. Whole numbers wrap around. 16-bit floats are computed in float32 and rounded
// back, once a call.
void reduce(ReduceOp op, DType dtype, void* output, const void* left, const void* right, std::size_t count);

// Each output[i] := op over all inputs[k][i], in their order, which are all ranks': so it is finished. The outputs may
// be among the inputs. 16-bit floats are combined in float32 and rounded once in all, an average of them once more.
void reduce_all(ReduceOp op, DType dtype, std::span<void* const> outputs, std::span<const void* const> inputs,
                std::size_t count);

// What is to be done with a rank's values before they are combined: the factor of a premultiplied sum.
bool needs_preparation(ReduceOp op);
// The type of prepared values: float32 for 16-bit floats, so that their products and their sum are rounded once.
DType prepared_type(DType dtype);
// factor: this rank's. output: of the prepared type; it may be the input where that has the same type.
void prepare_reduction(double factor, ConstSpan input, void* output);
// Brings prepared values that are combined back to the type of output. They may be the output where types are the same.
void finish_prepared(const void* values, Span output);

// What is left to do once all ranks' values are combined: the division of an average.
void finish_reduction(ReduceOp op, Span values, int ranks);

}  // namespace ddprun::comm
