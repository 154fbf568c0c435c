// Devices of the CUDA runtime.
#include <cstdio>
#include <cstring>
#include <string>

#include "worker/cuda/emulator/block.h"
#include "worker/cuda/emulator/runtime_call.h"

namespace ddprun::cuda::emulator {
namespace {

cudaError_t wait_for_device(const Call& call) {
  Machine& machine = call.machine();
  const int device = machine.current_device();
  machine.work_until([&] { return machine.is_idle(device); });
  return machine.device(device).fault;
}

}  // namespace
}  // namespace ddprun::cuda::emulator

using namespace ddprun::cuda::emulator;

extern "C" {

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  const Call call("cudaDriverGetVersion");
  *driverVersion = call.machine().settings().driver;
  return remember(call.fails() ? call.failure(cudaErrorInvalidValue) : cudaSuccess);
}

cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  const Call call("cudaRuntimeGetVersion");
  *runtimeVersion = CUDART_VERSION;
  return remember(call.fails() ? call.failure(cudaErrorInvalidValue) : cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return query("cudaGetDeviceCount", cudaErrorInsufficientDriver, [&](const Call& call) {
    *count = call.machine().device_count();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return query("cudaSetDevice", cudaErrorDevicesUnavailable, [&](const Call& call) {
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    call.machine().current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return query("cudaGetDevice", cudaErrorUnknown, [&](const Call& call) {
    *device = call.machine().current_device();
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return query("cudaGetDeviceProperties", cudaErrorUnknown, [&](const Call& call) {
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    const Settings& settings = call.machine().settings();
    std::memset(prop, 0, sizeof *prop);
    std::snprintf(prop->name, sizeof prop->name, "emulated device");
    prop->totalGlobalMem = call.machine().device(device).memory.capacity();
    prop->sharedMemPerBlock = 48 * 1024;
    prop->sharedMemPerBlockOptin = static_cast<std::size_t>(shared_memory_limit(settings));
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = max_threads_of_block;
    prop->major = settings.major;
    prop->minor = settings.minor;
    prop->multiProcessorCount = 4;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->unifiedAddressing = 1;
    prop->memoryPoolsSupported = 1;
    prop->pciBusID = device + 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  return query("cudaDeviceGetAttribute", cudaErrorUnknown, [&](const Call& call) {
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    const Settings& settings = call.machine().settings();
    switch (attr) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = max_threads_of_block;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = 48 * 1024;
        return cudaSuccess;
      case cudaDevAttrWarpSize:
        *value = warpSize;
        return cudaSuccess;
      case cudaDevAttrMultiProcessorCount:
        *value = 4;
        return cudaSuccess;
      case cudaDevAttrL2CacheSize:
        *value = 4 << 20;
        return cudaSuccess;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = 2048;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = settings.major;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = settings.minor;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = shared_memory_limit(settings);
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  return query("cudaDeviceGetPCIBusId", cudaErrorUnknown, [&](const Call& call) {
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    const std::string id = call.machine().bus_id(device);
    const int length = std::snprintf(pciBusId, static_cast<std::size_t>(len), "%s", id.c_str());
    return length < len ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return run("cudaDeviceSynchronize", cudaErrorUnknown, wait_for_device);
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  return query("cudaDeviceCanAccessPeer", cudaErrorUnknown, [&](const Call& call) {
    if (!exists(call, device) || !exists(call, peerDevice)) return cudaErrorInvalidDevice;
    *canAccessPeer = device != peerDevice;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags) {
  return query("cudaDeviceEnablePeerAccess", cudaErrorUnknown, [&](const Call& call) {
    if (!exists(call, peerDevice) || peerDevice == call.machine().current_device()) return cudaErrorInvalidDevice;
    return flags == 0 ? cudaSuccess : cudaErrorInvalidValue;
  });
}
}  // extern "C"
