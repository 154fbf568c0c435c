// A module of an interface version that there has never been.
#include "worker/tensor/cuda/device_api.h"

extern "C" const ddprun::cuda::DeviceApi* ddprun_cuda_device_api() {
  static const ddprun::cuda::DeviceApi api{};
  return &api;
}
