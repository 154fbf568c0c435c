#pragma once

#include "worker/tensor/onednn/matmul.h"

namespace ddprun::cpu {

using onednn::multiply;
using onednn::Product;

// Multiplies float64 by plain loops, the oracle of the tests.
void multiply(const Product& product, const double* a, const double* b, double* out);

}  // namespace ddprun::cpu
