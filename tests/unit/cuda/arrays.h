#pragma once

#include <span>
#include <vector>

#include "worker/tensor/cuda/module/check.h"
#include "worker/tensor/cuda/module/device.h"

namespace ddprun::testing {

template <class T>
cuda::Scratch to_device(cuda::DeviceContext& device, const std::vector<T>& values) {
  return device.ring.upload(std::span<const T>(values));
}

// Copies after all work queued on the compute stream.
template <class T>
std::vector<T> to_host(cuda::DeviceContext& device, const cuda::Scratch& memory) {
  std::vector<T> values(memory.bytes() / sizeof(T));
  cuda::check(cudaMemcpyAsync(values.data(), memory.data(), memory.bytes(), cudaMemcpyDeviceToHost, device.stream()),
              "cudaMemcpyAsync");
  return values;
}

}  // namespace ddprun::testing
