#pragma once

#include "worker/tensor/kernels.h"

namespace ddprun::optim {

// Calls function.operator()<T>() with the type of value's elements: the loops of optimizers that have no kernel of
// their own. Errors: Errc::unsupported naming the operation, unless value is float32 or float64 in host memory.
template <class Function>
void with_host_type(const char* operation, const Tensor& value, Function function) {
  if (value.device().type == DeviceType::cpu && value.dtype() == DType::float32)
    return function.template operator()<float>();
  if (value.device().type == DeviceType::cpu && value.dtype() == DType::float64)
    return function.template operator()<double>();
  kernels::throw_missing(operation, value.dtype(), value.device());
}

}  // namespace ddprun::optim
