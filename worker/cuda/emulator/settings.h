#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <optional>
#include <string>
#include <vector>

namespace ddprun::cuda::emulator {

// The environment's settings of the emulator, as they are when the first function is called.
struct Settings {
  // The number of each device on the machine: of DDPRUN_CUDA_EMULATOR ones those that CUDA_VISIBLE_DEVICES lists.
  std::vector<int> devices;
  std::size_t memory = std::size_t{4} << 30;  // DDPRUN_CUDA_EMULATOR_MEMORY: bytes of each device
  std::uint64_t seed = 0;       // DDPRUN_CUDA_EMULATOR_SEED decides the order in which threads and streams run
  int major = 9, minor = 0;     // DDPRUN_CUDA_EMULATOR_CAPABILITY=9.0
  int driver = CUDART_VERSION;  // DDPRUN_CUDA_EMULATOR_DRIVER=12040: CUDA 12.4 at most; 0 if there is no driver
  // DDPRUN_CUDA_EMULATOR_NCCL=21803 makes NCCL say that it is 2.18.3; the same goes for cuBLASLt and cuDNN.
  std::optional<int> nccl, cublaslt, cudnn;
  // With DDPRUN_CUDA_EMULATOR_CLOCK=operations each operation takes a microsecond; else as long as its emulation.
  bool counts_operations = false;
  bool launch_blocking = false;  // CUDA_LAUNCH_BLOCKING=1: a launch waits until the kernel has run
  std::string fail;              // DDPRUN_CUDA_EMULATOR_FAIL=function[@device][:n[:code]]; "*" is any function
};
Settings read_settings();

// The most shared memory of a block that a kernel may ask for, in bytes.
int shared_memory_limit(const Settings& settings);

}  // namespace ddprun::cuda::emulator
