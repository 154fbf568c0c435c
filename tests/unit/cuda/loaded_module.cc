#include "worker/tensor/cuda/cuda_device.h"
#include "tests/unit/cuda/tested_module.h"

namespace ddprun::test {

const cuda::DeviceApi& device_api() {
  return cuda::api();
}

}  // namespace ddprun::test
