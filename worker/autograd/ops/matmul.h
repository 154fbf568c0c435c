#pragma once

#include <cstdint>
#include <vector>

#include "worker/autograd/variable.h"

namespace ddprun {

// a (m, k), b (k, n) -> (m, n); with equal leading dimensions, one product for each: (..., m, k), (..., k, n).
Variable matmul(const Variable& a, const Variable& b);
// a (m, k), b (k, n), bias (n) -> (m, n): a b + bias
Variable addmm(const Variable& bias, const Variable& a, const Variable& b);
// input (..., in), weight (out, in), bias (out) or undefined -> (..., out): input weight^T + bias
Variable linear(const Variable& input, const Variable& weight, const Variable& bias = {});
// a (rows, k), b (groups, k, n), bias (groups, n) or undefined -> (rows, n): the first counts[0] rows times b[0] plus
// bias[0], the next counts[1] rows times b[1], ... counts add up to the rows and may be zero. PyTorch's grouped_mm.
Variable grouped_mm(const Variable& a, const std::vector<std::int64_t>& counts, const Variable& b,
                    const Variable& bias = {});

}  // namespace ddprun
