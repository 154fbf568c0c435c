#pragma once

#include <cstdint>
#include <string>

#include "worker/cuda/cuda_module.h"

// The emulator of CUDA devices in the module that this program has opened: worker/cuda/emulator/control.h describes
// each function.
namespace ddprun::test::emulator {

template <class Function>
Function* control(const char* name) {
  return CudaModule::get().symbol<Function>(name);
}

inline std::uint64_t calls(const std::string& selection) {
  return control<std::uint64_t(const char*)>("ddprun_cuda_emulator_calls")(selection.c_str());
}
inline void fail(const std::string& specification) {
  control<void(const char*)>("ddprun_cuda_emulator_fail")(specification.c_str());
}
inline bool has_failed() {
  return control<bool()>("ddprun_cuda_emulator_has_failed")();
}
inline std::uint64_t live(const std::string& kind) {
  return control<std::uint64_t(const char*)>("ddprun_cuda_emulator_live")(kind.c_str());
}
using Observer = void(const char* function, int device, void* context);
inline void observe(Observer* observer, void* context) {
  control<void(Observer*, void*)>("ddprun_cuda_emulator_observe")(observer, context);
}
inline void seed(std::uint64_t seed) {
  control<void(std::uint64_t)>("ddprun_cuda_emulator_seed")(seed);
}

}  // namespace ddprun::test::emulator
