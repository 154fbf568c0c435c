#include "ddprun/worker/tensor/cuda/module/device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/cuda/module/check.h"
#include "ddprun/worker/tensor/cuda/module/groups.h"
#include "ddprun/worker/tensor/cuda/module/guarded.h"

namespace ddprun::cuda {
namespace {

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

template <std::size_t n>
void copy_text(std::array<char, n>& to, const char* from) {
  to.fill('\0');
  std::memcpy(to.data(), from, std::min(std::strlen(from), n - 1));
}

Outcome device_count(int* count) {
  return outcome_of([&] {
    *count = 0;
    const cudaError_t error = cudaGetDeviceCount(count);
    if (error != cudaErrorNoDevice) check(error, "cudaGetDeviceCount");
  });
}

Outcome open(int ordinal, DeviceContext** device) {
  return outcome_of([&] { *device = &context_of(ordinal); });
}

void describe(DeviceContext& device, DeviceFacts* facts) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device.ordinal), "cudaGetDeviceProperties");
  copy_text(facts->name, properties.name);
  facts->bus_id.fill('\0');
  check(cudaDeviceGetPCIBusId(facts->bus_id.data(), static_cast<int>(facts->bus_id.size()), device.ordinal),
        "cudaDeviceGetPCIBusId");
  facts->major = properties.major;
  facts->minor = properties.minor;
  check(cudaMemGetInfo(&facts->free_bytes, &facts->total_bytes), "cudaMemGetInfo");
  check(cudaDriverGetVersion(&facts->driver_version), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&facts->runtime_version), "cudaRuntimeGetVersion");
}

std::uint64_t synchronizations(DeviceContext* device) {
  return device->synchronizations;
}

std::uint64_t launches(DeviceContext* device) {
  return device->launches;
}

}  // namespace

DeviceContext::DeviceContext(int number)
    : ordinal(number),
      major(attribute(cudaDevAttrComputeCapabilityMajor, number)),
      minor(attribute(cudaDevAttrComputeCapabilityMinor, number)),
      multiprocessors(attribute(cudaDevAttrMultiProcessorCount, number)),
      shared_memory_limit(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, number)),
      compute(Stream::Priority::usual),
      communication(Stream::Priority::high),
      copies(Stream::Priority::high),
      memory(number, compute.get()),
      ring(compute.get(), memory, synchronizations) {}

DeviceContext& context_of(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: tensors may outlive what ends a program, and the driver with it.
  static auto& contexts = *new std::map<int, std::unique_ptr<DeviceContext>>;
  const std::lock_guard lock(mutex);
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  std::unique_ptr<DeviceContext>& context = contexts[ordinal];
  if (!context) context = std::make_unique<DeviceContext>(ordinal);
  return *context;
}

void make_current(const DeviceContext& device) {
  check(cudaSetDevice(device.ordinal), "cudaSetDevice");
}

Outcome failure(Errc code, const char* text) {
  thread_local Failure last;
  last.code = code;
  copy_text(last.text, text);
  return &last;
}

void add_devices(DeviceApi& api) {
#ifdef DDPRUN_CUDA_EMULATED
  api.emulated = true;
#endif
  api.device_count = device_count;
  api.open = open;
  api.describe = guarded<describe>;
  api.synchronizations = synchronizations;
  api.launches = launches;
}

}  // namespace ddprun::cuda
