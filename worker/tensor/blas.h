#pragma once

#include "ddprun/worker/tensor/plain/loops.h"

namespace ddprun::blas {

// plain::Matmul<float> through the BLAS's sgemm.
void matmul(plain::Matmul<float>::Sizes sizes, const float* a, const float* b, float* out,
            kernels::MatmulOptions options);

}  // namespace ddprun::blas
