#include "worker/tensor/cuda/module/device.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "common/error.h"
#include "worker/tensor/cuda/module/check.h"
#include "worker/tensor/cuda/module/groups.h"
#include "worker/tensor/cuda/module/guarded.h"

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

void allow_tf32(DeviceContext& device, bool allow) {
  if (allow && device.architecture() < 80)
    throw make_error(Errc::unsupported, "TF32 needs compute capability 8.0, {} has {}.{}", device.name(), device.major,
                     device.minor);
  device.allow_tf32 = allow;
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

namespace {

struct Contexts {
  std::mutex mutex;
  std::map<int, std::unique_ptr<DeviceContext>> opened;
};

// The contexts are never destroyed: tensors may outlive what ends a program, and the driver with it.
Contexts& contexts() {
  static auto& all = *new Contexts;
  return all;
}

// Returns what the current device was given last, where it is open.
std::string queued_last() {
  int ordinal = 0;
  if (cudaGetDevice(&ordinal) != cudaSuccess) return "";
  Contexts& all = contexts();
  const std::lock_guard lock(all.mutex);
  const auto found = all.opened.find(ordinal);
  return found == all.opened.end() || !found->second ? "" : found->second->recent.text();
}

}  // namespace

DeviceContext& context_of(int ordinal) {
  Contexts& all = contexts();
  const std::lock_guard lock(all.mutex);
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  std::unique_ptr<DeviceContext>& context = all.opened[ordinal];
  if (!context) context = std::make_unique<DeviceContext>(ordinal);
  return *context;
}

void make_current(const DeviceContext& device) {
  check(cudaSetDevice(device.ordinal), "cudaSetDevice");
}

namespace {

Failure& last_failure(Errc code, const char* text) {
  thread_local Failure last;
  last.code = code;
  last.exhausted = 0;
  copy_text(last.text, text);
  return last;
}

}  // namespace

Outcome failure(Errc code, const char* text) {
  return &last_failure(code, text);
}

Outcome failure(const MemoryExhausted& error) {
  Failure& last = last_failure(error.code(), error.what());
  last.device = error.device();
  last.exhausted = error.wanted();
  return &last;
}

Outcome failure(const KernelFault& fault, std::string_view operation) {
  std::string text = fault.what();
  if (!operation.empty()) text.append("; reported by ").append(operation);
  if (const std::string queued = queued_last(); !queued.empty()) text.append("; queued last: ").append(queued);
  return failure(fault.code(), text.c_str());
}

void add_devices(DeviceApi& api) {
#ifdef DDPRUN_CUDA_EMULATED
  api.emulated = true;
#endif
  api.device_count = device_count;
  api.open = open;
  api.describe = guarded<describe>;
  api.allow_tf32 = guarded<allow_tf32>;
  api.synchronizations = synchronizations;
  api.launches = launches;
}

}  // namespace ddprun::cuda
