#pragma once

#include <cstdint>
#include <vector>

#include "worker/autograd/variable.h"

// Views, and operations that rearrange memory. Views share the memory of their input; operations that need row-major
// memory copy them. Dimensions may be negative: counted from the end.
namespace ddprun {

// One size may be -1. Copies a strided input.
Variable reshape(const Variable& input, Shape shape);
// (batch, ...) -> (batch, everything else)
Variable flatten(const Variable& input);
Variable permute(const Variable& input, const std::vector<std::int64_t>& dims);
Variable transpose(const Variable& input, std::int64_t dim0, std::int64_t dim1);
// Takes [start, start + length) of a dimension.
Variable slice(const Variable& input, std::int64_t dim, std::int64_t start, std::int64_t length);
// Takes one index of a dimension, which is left out of the result's shape.
Variable select(const Variable& input, std::int64_t dim, std::int64_t index);
// Repeats sizes of 1.
Variable expand(const Variable& input, const Shape& shape);
Variable contiguous(const Variable& input);
// Returns a copy on another device, to which the gradient goes back, or input itself if it is there already.
Variable to_device(const Variable& input, Device device);

// Joins inputs along an existing dimension, the only one in which the shapes may differ.
Variable concat(const std::vector<Variable>& inputs, std::int64_t dim);
// Returns parts of the given lengths, which add up to the dimension.
std::vector<Variable> split(const Variable& input, const std::vector<std::int64_t>& lengths, std::int64_t dim);

}  // namespace ddprun
