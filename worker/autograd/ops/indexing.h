#pragma once

#include "worker/autograd/variable.h"

// Operations by index. Indices are int64 tensors; one out of range is Errc::usage, naming it, on the
// host. Those on a CUDA device are not checked here: they were checked before, or are REQUIRED to be in range.
namespace ddprun {

// indices (...), weight (entries, width) -> (..., width): row indices[i] of the weight.
Variable embedding(const Tensor& indices, const Variable& weight);
// input (rows, width), indices (n) -> (n, width): embedding() of computed rows; PyTorch's index_select of dimension 0.
Variable index_select(const Variable& input, const Tensor& indices);

// For the next three, the shapes of input and indices agree except in dimension dim.
// out[i][j][k] = input[i][indices[i][j][k]][k] for dim 1, of the shape of indices.
Variable gather(const Variable& input, std::int64_t dim, const Tensor& indices);
// input with source[i][j][k] added at [i][indices[i][j][k]][k] for dim 1; source has the shape of indices.
Variable scatter_add(const Variable& input, std::int64_t dim, const Tensor& indices, const Variable& source);
// Like scatter_add(), but source replaces the elements. If several sources go to one element, the value is the last of
// them; gradients are those of distinct elements.
Variable scatter(const Variable& input, std::int64_t dim, const Tensor& indices, const Variable& source);

}  // namespace ddprun
