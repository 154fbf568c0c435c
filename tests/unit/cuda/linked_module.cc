#include "tests/unit/cuda/tested_module.h"

// The program has the emulated module's objects.
extern "C" const ddprun::cuda::DeviceApi* ddprun_cuda_device_api();

namespace ddprun::test {

const cuda::DeviceApi& device_api() {
  return *ddprun_cuda_device_api();
}

}  // namespace ddprun::test
