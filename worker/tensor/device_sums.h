#pragma once

#include <cstddef>

#include "ddprun/worker/tensor/tensor.h"

namespace ddprun {

// Adds up many tensors of one device. The sums stay there: the host waits for the device once, in total().
//
// Threads: not synchronised.
class DeviceSums {
 public:
  // At most so many tensors, of this device and floating-point type.
  DeviceSums(std::size_t count, DType dtype, Device device);

  void add(const Tensor& x);
  // Of all elements of all tensors so far, the sums of tensors being added in double.
  double total() const;

 private:
  Tensor sums_;
  std::int64_t used_ = 0;
};

}  // namespace ddprun
