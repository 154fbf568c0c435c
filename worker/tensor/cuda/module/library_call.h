#pragma once

#include <cublasLt.h>
#include <cudnn.h>

#include "common/dtype.h"
#include "worker/tensor/cuda/module/device.h"

namespace ddprun::cuda {

// The operation for which a library is called, which an error names.
struct LibraryCall {
  const DeviceContext& device;
  const char* operation;
  DType dtype;
};

// Throw what the function of the library has failed with.
void check(cublasStatus_t status, const char* function, const LibraryCall& call);
void check(cudnnStatus_t status, const char* function, const LibraryCall& call);

// Tensor cores compute with bfloat16 from sm_80 on. Before, the libraries would refuse it with a bare number, or
// compute many times slower.
void check_architecture(const LibraryCall& call);

}  // namespace ddprun::cuda
