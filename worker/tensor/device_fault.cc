#include "worker/tensor/device_fault.h"

#include "worker/tensor/cuda/cuda_device.h"

namespace ddprun {

std::optional<DeviceError> device_fault(Device device) {
  if (device.type != DeviceType::cuda) return std::nullopt;
  try {
    const auto& cuda = cuda::CudaDevice::of(device);
    bool idle = false;
    cuda::check(cuda.api().is_idle(cuda.context(), cuda::Queue::compute, &idle));
    return std::nullopt;
  } catch (const DeviceError& error) {
    return error;
  }
}

}  // namespace ddprun
