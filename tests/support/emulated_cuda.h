#pragma once

#include <cstdlib>
#include <string>

namespace ddprun::test {

// Gives this program that many emulated CUDA devices. Call it before the first use of one, from a static object:
//   [[maybe_unused]] const bool has_devices = use_emulated_cuda(2);
// EMULATED_CUDA_MODULE is the module's path, from the build (ddprun_emulated_cuda() of tests/CMakeLists.txt). With
// DDPRUN_TEST_DEVICES in the environment the program has the devices that the worker would find there, real ones too.
inline bool use_emulated_cuda(int devices) {
  if (std::getenv("DDPRUN_TEST_DEVICES") != nullptr) return false;
  ::setenv("DDPRUN_CUDA_EMULATOR", std::to_string(devices).c_str(), 1);
  ::setenv("DDPRUN_CUDA_MODULE", EMULATED_CUDA_MODULE, 1);
  return true;
}

}  // namespace ddprun::test
