#include "worker/cuda/emulator/control.h"

#include <mutex>

#include "worker/cuda/emulator/machine.h"

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

std::uint64_t ddprun_cuda_emulator_live(const char* kind) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  machine.work_while_possible();
  return machine.live(kind);
}

void ddprun_cuda_emulator_observe(DdprunCudaEmulatorObserver* observer, void* context) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  machine.observer() = {observer, context};
}

void ddprun_cuda_emulator_seed(std::uint64_t seed) {
  Machine& machine = Machine::get();
  const std::lock_guard lock(machine.mutex());
  machine.random() = ddprun::cuda::emulator::Random(seed);
}

}  // extern "C"
