#pragma once

#include "ddprun/common/dtype.h"
#include "ddprun/worker/tensor/device.h"

namespace ddprun::trainer {

// FLOP/s of a large matrix product in float32 on this rank's threads: the best of some, which take about 0.1 s.
double measure_peak_flops();

// The same on a CUDA device, by its clock, of matrices of a type; as large as a product of about a millisecond is.
double measure_peak_flops(Device device, DType dtype);

}  // namespace ddprun::trainer
