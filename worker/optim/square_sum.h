#pragma once

#include <vector>

#include "ddprun/worker/tensor/tensor.h"

namespace ddprun::optim {

// Of all elements, taken in double, in an order that depends on their number alone. T: float or double.
template <class T>
double square_sum(std::int64_t count, const T* x);
// On any device, of any floating type; the host waits for a CUDA device once.
double square_sum(const Tensor& x);
// Of all tensors together; the host waits for each CUDA device once.
double square_sum(const std::vector<Tensor>& tensors);
// The same in memory of the first tensor's device, as one float64: the host waits for nothing. REQUIRES: there is a
// tensor.
Tensor square_sum_there(const std::vector<Tensor>& tensors);

}  // namespace ddprun::optim
