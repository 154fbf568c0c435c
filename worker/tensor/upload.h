#pragma once

#include "worker/tensor/tensor.h"

namespace ddprun {

// Does what host.to(device) does, without waiting for a CUDA device. The values pass through pinned memory; a tensor
// that lies in pinned memory (Tensor::empty_pinned()) is read from there, while the device's queue gets to it: the
// caller does not change it afterwards. REQUIRES: host is on a CPU device.
Tensor upload(const Tensor& host, Device device);

}  // namespace ddprun
