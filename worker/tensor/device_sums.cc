#include "ddprun/worker/tensor/device_sums.h"

#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {

DeviceSums::DeviceSums(std::size_t count, DType dtype, Device device)
    : sums_(Tensor::empty({static_cast<std::int64_t>(count)}, dtype, device)) {}

void DeviceSums::add(const Tensor& x) {
  Tensor sum = sums_.slice(0, used_++, 1);
  kernels::of(x).sum(x.to(sums_.dtype()).contiguous(), {1, x.numel(), 1}, sum);
}

double DeviceSums::total() const {
  const Tensor sums = sums_.slice(0, 0, used_).to(Device{}).to(DType::float64);
  return kernels::sum(sums).item();
}

}  // namespace ddprun
