#pragma once

#include <cuda_runtime.h>

#include "worker/cuda/emulator/machine.h"

// The answers of each function of the emulated CUDA runtime: a failure that was asked for, what the driver and the
// devices lack, or what the function does. Any thread may call them; a Call has the machine's lock.
namespace ddprun::cuda::emulator {

// Notes the error for cudaGetLastError() of this thread, and returns it.
cudaError_t remember(cudaError_t error);
// Returns whether a device computes nothing more after this error.
bool is_sticky(cudaError_t error);
// Returns the error of a failure that was asked for.
cudaError_t fail(const Call& call, cudaError_t usual);
inline bool exists(const Call& call, int device) {
  return device >= 0 && device < call.machine().device_count();
}

// Makes a call that the devices' state cannot make fail.
template <class Function>
cudaError_t query(const char* name, cudaError_t failure, const Function& function) {
  const Call call(name);
  if (call.fails()) return remember(fail(call, failure));
  if (call.machine().settings().driver < CUDART_VERSION) return remember(cudaErrorInsufficientDriver);
  if (call.machine().device_count() == 0) return remember(cudaErrorNoDevice);
  return remember(function(call));
}

// Makes a call that also reports what has failed on the device since.
template <class Function>
cudaError_t run(const char* name, cudaError_t failure, const Function& function) {
  return query(name, failure, [&](const Call& call) {
    if (const cudaError_t fault = call.device().fault; fault != cudaSuccess) return fault;
    return function(call);
  });
}

}  // namespace ddprun::cuda::emulator
