#include "ddprun/worker/cuda/emulator/control.h"

#include <mutex>

#include "ddprun/worker/cuda/emulator/machine.h"

using ddprun::cuda::emulator::Machine;

extern "C" {

std::uint64_t ddprun_cuda_emulator_calls(const char* function) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  return machine.calls().count(function);
}

void ddprun_cuda_emulator_fail(const char* specification) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  machine.calls().fail(specification);
}

bool ddprun_cuda_emulator_has_failed() {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  return machine.calls().has_failed();
}

}  // extern "C"
