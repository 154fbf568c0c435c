#pragma once

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::onednn {

// out (m, n) = op(a) (m, k) op(b) (k, n), row-major, with the distances between rows in memory.
struct Product {
  std::int64_t m, n, k;
  std::int64_t a_stride, b_stride, out_stride;
  kernels::MatmulOptions options;
};

// Of float32, through oneDNN's sgemm.
void multiply(const Product& product, const float* a, const float* b, float* out);

}  // namespace ddprun::onednn
