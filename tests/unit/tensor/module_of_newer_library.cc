// A module that needs a function which its library does not have.
#include "worker/tensor/cuda/device_api.h"

extern "C" void cudnnFunctionOfTomorrow();

extern "C" const ddprun::cuda::DeviceApi* ddprun_cuda_device_api() {
  static const ddprun::cuda::DeviceApi api{};
  cudnnFunctionOfTomorrow();
  return &api;
}
