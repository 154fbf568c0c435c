#pragma once

#include "worker/tensor/cuda/cuda_device.h"
#include "worker/tensor/tensor.h"

// Conversion of tensors to the module's operands.
namespace ddprun::cuda {

inline const CudaDevice& device_of(const Tensor& tensor) {
  return CudaDevice::of(tensor.device());
}

// An undefined tensor is an operand that is left out. Throws Errc::mismatch for a blocked one.
View view_of(const Tensor& tensor);

}  // namespace ddprun::cuda
