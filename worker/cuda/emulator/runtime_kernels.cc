// Launches of kernels.
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "worker/cuda/emulator/block.h"
#include "worker/cuda/emulator/runtime_call.h"

namespace ddprun::cuda::emulator {
namespace {

void fail_device(Machine& machine, int device, cudaError_t error) {
  machine.device(device).fault = error;
}

cudaError_t check_configuration(const Call& call, const cudaLaunchConfig_t& config, const void* kernel) {
  const auto in_range = [](const dim3& d, unsigned x, unsigned y, unsigned z) {
    return d.x >= 1 && d.x <= x && d.y >= 1 && d.y <= y && d.z >= 1 && d.z <= z;
  };
  if (!in_range(config.gridDim, 0x7fffffff, 65535, 65535)) return cudaErrorInvalidConfiguration;
  if (!in_range(config.blockDim, 1024, 1024, 64)) return cudaErrorInvalidConfiguration;
  if (config.blockDim.x * config.blockDim.y * config.blockDim.z > max_threads_of_block)
    return cudaErrorInvalidConfiguration;
  const auto& limits = call.machine().shared_memory_limits();
  const auto raised = limits.find(kernel);
  const int limit = raised == limits.end() ? 48 * 1024 : raised->second;
  return config.dynamicSmemBytes > static_cast<std::size_t>(limit) ? cudaErrorInvalidValue : cudaSuccess;
}

StreamOperation run_kernel(Machine& machine, int device, const cudaLaunchConfig_t& config,
                           std::function<void()> thread) {
  return [&machine, device, blocks = config.gridDim, threads = config.blockDim, bytes = config.dynamicSmemBytes,
          thread = std::move(thread)] {
    const std::string fault = run_grid({blocks, threads, bytes, &thread}, machine.random());
    if (!fault.empty()) {
      std::fprintf(stderr, "CUDA emulator: a kernel on device %d cannot go on: %s\n", device, fault.c_str());
      fail_device(machine, device, cudaErrorLaunchFailure);
    }
    return true;
  };
}

// A kernel fails when it runs, not when it is launched.
StreamOperation faulty_kernel(Machine& machine, int device, cudaError_t fault) {
  return [&machine, device, fault] {
    fail_device(machine, device, fault);
    return true;
  };
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  const Call call("cudaLaunchKernelExC");
  const cudaError_t asked = call.fails() ? call.failure(cudaErrorLaunchFailure) : cudaSuccess;
  if (asked != cudaSuccess && (asked == cudaErrorLaunchFailure || !is_sticky(asked))) return remember(asked);
  if (call.machine().device_count() == 0) return remember(cudaErrorNoDevice);
  if (const cudaError_t fault = call.device().fault; fault != cudaSuccess) return remember(fault);
  if (const cudaError_t error = check_configuration(call, config, kernel); error != cudaSuccess) return remember(error);
  CUstream_st* const stream = call.machine().find_stream(config.stream);
  if (stream == nullptr) return remember(cudaErrorInvalidResourceHandle);
  call.machine().enqueue(stream, asked == cudaSuccess
                                     ? run_kernel(call.machine(), stream->device, config, std::move(thread))
                                     : faulty_kernel(call.machine(), stream->device, asked));
  if (!call.machine().settings().launch_blocking) return cudaSuccess;
  call.machine().work_until([&] { return stream->operations.empty(); });
  return remember(call.machine().device(stream->device).fault);
}

}  // namespace ddprun::cuda::emulator

using namespace ddprun::cuda::emulator;

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attr, int value) {
  return run("cudaFuncSetAttribute", cudaErrorUnknown, [&](const Call& call) {
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > shared_memory_limit(call.machine().settings()))
      return cudaErrorInvalidValue;
    call.machine().shared_memory_limits()[func] = value;
    return cudaSuccess;
  });
}
}  // extern "C"
