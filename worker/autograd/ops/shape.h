#pragma once

#include <cstdint>
#include <vector>

#include "ddprun/worker/autograd/variable.h"

// Views, and what rearranges memory. Views share the memory of their input; operations that need row-major memory copy
// them. Dimensions may be negative: counted from the end.
namespace ddprun {

// One size may be -1. Copies a strided input.
Variable reshape(const Variable& input, Shape shape);
// (batch, ...) -> (batch, everything else)
Variable flatten(const Variable& input);
Variable permute(const Variable& input, const std::vector<std::int64_t>& dims);
Variable transpose(const Variable& input, std::int64_t dim0, std::int64_t dim1);
// [start, start + length) of a dimension.
Variable slice(const Variable& input, std::int64_t dim, std::int64_t start, std::int64_t length);
// One index of a dimension, which is left out.
Variable select(const Variable& input, std::int64_t dim, std::int64_t index);
// Sizes of 1 repeated.
Variable expand(const Variable& input, const Shape& shape);
Variable contiguous(const Variable& input);
// A copy on another device, to which the gradient goes back; itself where it is there.
Variable to_device(const Variable& input, Device device);

// Along an existing dimension, in which alone the shapes may differ.
Variable concat(const std::vector<Variable>& inputs, std::int64_t dim);
// Parts of the given lengths, which add up to the dimension.
std::vector<Variable> split(const Variable& input, const std::vector<std::int64_t>& lengths, std::int64_t dim);

}  // namespace ddprun
