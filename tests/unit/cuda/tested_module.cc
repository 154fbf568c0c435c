#include "tests/unit/cuda/tested_module.h"

#include "common/error.h"

namespace ddprun::test {

cuda::DeviceContext* test_device() {
  static cuda::DeviceContext* const device = [] {
    cuda::DeviceContext* opened = nullptr;
    check(device_api().open(0, &opened));
    return opened;
  }();
  return device;
}

void check(cuda::Outcome outcome) {
  if (outcome != nullptr) throw Error(outcome->code, outcome->text.data());
}

}  // namespace ddprun::test
