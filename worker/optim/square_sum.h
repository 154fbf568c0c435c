#pragma once

#include <vector>

#include "worker/tensor/tensor.h"

namespace ddprun::optim {

// Returns the sum of squares, in double, in an order that depends only on the number of elements. T: float or double.
template <class T>
double square_sum(std::int64_t count, const T* x);
// The overload for any device and any floating type; the host waits for a CUDA device once.
double square_sum(const Tensor& x);
// The sum over all tensors; the host waits for each CUDA device once.
double square_sum(const std::vector<Tensor>& tensors);
// Computes the sum in memory of the first tensor's device, as one float64: the host waits for nothing. REQUIRES: there
// is a tensor.
Tensor square_sum_there(const std::vector<Tensor>& tensors);

}  // namespace ddprun::optim
