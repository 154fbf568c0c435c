#pragma once

#include "worker/tensor/cuda/device_api.h"

// Operations that compute or move element by element; they are as in DeviceApi. unary.cu, binary.cu, select.cu,
// copy.cu, cast_all.cu, dropout.cu
namespace ddprun::cuda {

void unary(DeviceContext& device, functor::Unary function, const functor::Arguments& arguments, const View& x,
           const View& y);
void unary_gradient(DeviceContext& device, functor::Unary function, const functor::Arguments& arguments,
                    const View& saved, const View& grad, const View& out);
void binary(DeviceContext& device, functor::Binary function, const functor::Arguments& arguments, const View& a,
            const View& b, const View& out);
void binary_gradient(DeviceContext& device, functor::Binary function, const functor::Arguments& arguments, int operand,
                     const View& a, const View& b, const View& grad, const View& out);
void compare(DeviceContext& device, functor::Comparison comparison, const View& a, const View& b, const View& out);
void where(DeviceContext& device, const View& cond, const View& a, const View& b, const View& out);
void copy(DeviceContext& device, const View& from, const View& to);
void cast_all(DeviceContext& device, const View* from, const View* to, std::int64_t count);
void fill(DeviceContext& device, const View& to, double value);
void dropout(DeviceContext& device, const View& x, double probability, std::uint64_t seed, const std::uint64_t* streams,
             std::int64_t rows, std::uint64_t first, const View& out);

}  // namespace ddprun::cuda
