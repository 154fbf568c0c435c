#pragma once

#include "ddprun/worker/autograd/variable.h"

namespace ddprun {

// a (m, k), b (k, n) -> (m, n); with equal leading dimensions, one product for each: (..., m, k), (..., k, n).
Variable matmul(const Variable& a, const Variable& b);
// a (m, k), b (k, n), bias (n) -> (m, n): a b + bias
Variable addmm(const Variable& bias, const Variable& a, const Variable& b);
// input (..., in), weight (out, in), bias (out) or undefined -> (..., out): input weight^T + bias
Variable linear(const Variable& input, const Variable& weight, const Variable& bias = {});

}  // namespace ddprun
