#pragma once

#include "ddprun/worker/tensor/plain/loops.h"

namespace ddprun::onednn {

// plain::Matmul<float> through oneDNN's sgemm.
void matmul(plain::Matmul<float>::Sizes sizes, const float* a, const float* b, float* out,
            kernels::MatmulOptions options);

}  // namespace ddprun::onednn
