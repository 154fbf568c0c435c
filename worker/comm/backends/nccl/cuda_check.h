#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

// Checks of what CUDA and NCCL return. The errors name the function and the device; the group adds rank and host.
namespace ddprun::comm {

// Throws Errc::io unless the call has succeeded. device: the one that the call is for.
void check_cuda(cudaError_t result, const char* function, int device);

// Throws unless the result is success or in progress: Errc::usage where NCCL refuses the call, else
// Errc::connection_lost. detail: what NCCL says about it, where it does.
void check_nccl(ncclResult_t result, const char* function, int device, const char* detail = "");

}  // namespace ddprun::comm
