#include "worker/tensor/upload.h"

#include <cstring>

#include "worker/tensor/cuda/pinned_memory.h"
#include "worker/tensor/kernels.h"

namespace ddprun {

Tensor upload(const Tensor& host, Device device) {
  if (device.type == DeviceType::cpu) return host.to(device);
  Tensor staged = host.contiguous();
  if (staged.numel() == 0) return host.to(device);
  if (!staged.storage()->is_pinned()) {
    staged = Tensor::empty_pinned(host.shape(), host.dtype());
    kernels::copy(host, staged);
  }
  Tensor result = Tensor::empty(host.shape(), host.dtype(), device);
  const std::shared_ptr<void> memory(staged.storage(), staged.raw());
  cuda::copy_from_pinned(cuda::CudaDevice::of(device), result.raw(), memory, staged.bytes());
  return result;
}

}  // namespace ddprun
