#pragma once

#include "common/dtype.h"
#include "worker/tensor/device.h"

namespace ddprun::trainer {

// Measures FLOP/s of a large float32 matrix product on this rank's threads: the best of some, which take about 0.1 s.
double measure_peak_flops();

// Measures them on a CUDA device, by its clock, for matrices of a type, whose product takes about 1 ms.
double measure_peak_flops(Device device, DType dtype);

}  // namespace ddprun::trainer
