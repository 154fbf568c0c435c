#pragma once

#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun {

// Dimensions may be negative: counted from the end. keepdim keeps a reduced dimension with size 1.
using Dims = std::vector<std::int64_t>;

// Reduces all elements to a scalar.
Variable sum(const Variable& input);
Variable mean(const Variable& input);
// Reduces some dimensions.
Variable sum(const Variable& input, const Dims& dims, bool keepdim = false);
Variable mean(const Variable& input, const Dims& dims, bool keepdim = false);
// The gradient goes to the first maximum.
Variable max(const Variable& input, const Dims& dims, bool keepdim = false);

struct MaxResult {
  Variable values;
  Tensor indices;  // int64: the first maximum's position along the dimension
};
MaxResult max_with_indices(const Variable& input, std::int64_t dim, bool keepdim = false);

Variable softmax(const Variable& input, std::int64_t dim = -1);
Variable log_softmax(const Variable& input, std::int64_t dim = -1);

}  // namespace ddprun
