#pragma once

#include "ddprun/worker/autograd/variable.h"

namespace ddprun {

// a (m, k), b (k, n) -> (m, n)
Variable matmul(const Variable& a, const Variable& b);
// input (batch, in), weight (out, in), bias (out) or undefined -> (batch, out): input weight^T + bias
Variable linear(const Variable& input, const Variable& weight, const Variable& bias = {});

}  // namespace ddprun
