#pragma once

#include "worker/tensor/cuda/device_api.h"

// Reductions along an axis, and operations made of one, as in DeviceApi. sum.cu, max.cu, range.cu, softmax.cu, bias.cu
namespace ddprun::cuda {

void sum(DeviceContext& device, const View& x, const kernels::Axis& axis, const View& out);
void max(DeviceContext& device, const View& x, const kernels::Axis& axis, const View& out, const View& index);
void value_range(DeviceContext& device, const View& x, const View& range);
void softmax(DeviceContext& device, const View& x, const kernels::Axis& rows, bool log, const View& y);
void softmax_gradient(DeviceContext& device, const View& y, const View& grad, const kernels::Axis& rows, bool log,
                      const View& out);
void add_bias(DeviceContext& device, const View& x, const View& bias, std::int64_t outer, std::int64_t inner);
void sum_to_bias(DeviceContext& device, const View& grad, std::int64_t outer, std::int64_t inner, const View& out,
                 bool accumulate);

}  // namespace ddprun::cuda
