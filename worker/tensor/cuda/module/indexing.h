#pragma once

#include "worker/tensor/cuda/device_api.h"

// Operations on elements and rows chosen by indices; they are as in DeviceApi. gather.cu, scatter.cu
namespace ddprun::cuda {

void gather(DeviceContext& device, const View& x, const kernels::Axis& axis, const View& index, const View& out);
void scatter_add(DeviceContext& device, const View& x, const kernels::Axis& axis, const View& index, const View& out);
void scatter(DeviceContext& device, const View& x, const kernels::Axis& axis, const View& index, const View& out);
void gather_rows(DeviceContext& device, const View& table, const View& index, const View& out);
void scatter_add_rows(DeviceContext& device, const View& x, const View& index, const View& out);

}  // namespace ddprun::cuda
