#pragma once

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun::onednn {

struct MatmulSizes {
  std::int64_t m, n, k;
};

// kernels::Table::matmul for float32 through oneDNN's sgemm.
void matmul(MatmulSizes sizes, const float* a, const float* b, float* out, kernels::MatmulOptions options);

}  // namespace ddprun::onednn
