#pragma once

#include <vector>

#include "ddprun/worker/tensor/tensor.h"

namespace ddprun::optim {

// Of all elements, taken in double, in an order that depends on their number alone. T: float or double.
template <class T>
double square_sum(std::int64_t count, const T* x);
// On any device; a CUDA device takes it in the tensor's type, or in float32 for 16 bits.
double square_sum(const Tensor& x);
// Of all tensors together, on one device; the host waits for a CUDA device once.
double square_sum(const std::vector<Tensor>& tensors);

}  // namespace ddprun::optim
