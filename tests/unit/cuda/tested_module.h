#pragma once

#include "worker/tensor/cuda/device_api.h"

// The module under test. Which one it is depends on what the program links: linked_module.cc for the emulated module's
// objects, which sanitizers then see, or loaded_module.cc for the module that the worker would open, of a real device
// as well.
namespace ddprun::test {

const cuda::DeviceApi& device_api();
// Returns its first device.
cuda::DeviceContext* test_device();

// Throws an error if the call has failed.
void check(cuda::Outcome outcome);

}  // namespace ddprun::test
