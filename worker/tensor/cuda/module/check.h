#pragma once

#include <cuda_runtime_api.h>

namespace ddprun::cuda {

// Throws what has failed, with the device that is current, and forgets an error that is not sticky.
void check(cudaError_t status, const char* operation);

}  // namespace ddprun::cuda
