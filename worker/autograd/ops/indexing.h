#pragma once

#include "ddprun/worker/autograd/variable.h"

// Operations by index. Indices are int64 tensors; one out of range is Errc::usage, naming it, on the
// host. Those on a CUDA device are not looked at: they are checked before they get there, or REQUIRED to be in range.
namespace ddprun {

// indices (...), weight (entries, width) -> (..., width): row indices[i] of the weight.
Variable embedding(const Tensor& indices, const Variable& weight);
// input (rows, width), indices (n) -> (n, width): the same of rows that were computed, as PyTorch's along dimension 0.
Variable index_select(const Variable& input, const Tensor& indices);

// The shapes of input and indices agree but in dimension dim.
// out[i][j][k] = input[i][indices[i][j][k]][k] for dim 1, of the shape of indices.
Variable gather(const Variable& input, std::int64_t dim, const Tensor& indices);
// input with source[i][j][k] added at [i][indices[i][j][k]][k] for dim 1; source has the shape of indices.
Variable scatter_add(const Variable& input, std::int64_t dim, const Tensor& indices, const Variable& source);
// The same, replaced in place of added. Of several sources for one element the last counts, for the value; gradients
// are those of distinct elements.
Variable scatter(const Variable& input, std::int64_t dim, const Tensor& indices, const Variable& source);

}  // namespace ddprun
