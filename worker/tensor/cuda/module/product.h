#pragma once

#include "worker/tensor/cuda/device_api.h"

// Matrix products by cuBLASLt: float32 (in TF32 only where the device's context says so), float64, and bfloat16 and
// float16 with sums in float32, whose result may be float32. They are entries of DeviceApi with the same names.
namespace ddprun::cuda {

void matmul(DeviceContext& device, const View& bias, const View& a, const View& b, const View& out,
            const kernels::MatmulOptions& options);
void batched_matmul(DeviceContext& device, const View& a, const View& b, const View& out,
                    const kernels::MatmulOptions& options);
// An epilogue of cuBLASLt computes what it can; kernels before and after the product compute the rest.
void fused_matmul(DeviceContext& device, const View& a, const View& b, const View& out, const ProductFusion& fusion,
                  const kernels::MatmulOptions& options);

}  // namespace ddprun::cuda
