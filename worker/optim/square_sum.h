#pragma once

#include "ddprun/worker/tensor/tensor.h"

namespace ddprun::optim {

// Of all elements, taken in double, in an order that depends on their number alone. T: float or double.
template <class T>
double square_sum(std::int64_t count, const T* x);
// On any device.
double square_sum(const Tensor& x);

}  // namespace ddprun::optim
