#pragma once

#include "worker/tensor/cuda/device_api.h"

// Pooling of planes by own kernels: cuDNN does not say where a maximum was, and has no adaptive windows. They are
// entries of DeviceApi with the same names.
namespace ddprun::cuda {

void max_pool2d(DeviceContext& device, const kernels::PoolGeometry& geometry, const View& x, const View& out,
                const View& index);
void max_pool2d_backward(DeviceContext& device, const kernels::PoolGeometry& geometry, const View& grad,
                         const View& index, const View& out);
void avg_pool2d(DeviceContext& device, const kernels::PoolGeometry& geometry, const View& x, const View& out);
void avg_pool2d_backward(DeviceContext& device, const kernels::PoolGeometry& geometry, const View& grad,
                         const View& out);
void adaptive_avg_pool2d(DeviceContext& device, const kernels::PoolGeometry& geometry, const View& x, const View& out);
void adaptive_avg_pool2d_backward(DeviceContext& device, const kernels::PoolGeometry& geometry, const View& grad,
                                  const View& out);

}  // namespace ddprun::cuda
