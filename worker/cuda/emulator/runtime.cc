// The functions of the CUDA runtime.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <memory>
#include <new>
#include <string>

#include "ddprun/worker/cuda/emulator/block.h"
#include "ddprun/worker/cuda/emulator/machine.h"

namespace ddprun::cuda::emulator {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

// Errors with which a device computes nothing more.
bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
      return true;
    default:
      return false;
  }
}

// A failure that was asked for.
cudaError_t fail(const Call& call, cudaError_t usual) {
  const cudaError_t error = call.failure(usual);
  if (error != usual && is_sticky(error) && call.machine().device_count() > 0) call.device().fault = error;
  return error;
}

// A call that the devices' state cannot make fail.
template <class Function>
cudaError_t query(const char* name, cudaError_t failure, const Function& function) {
  const Call call(name);
  if (call.fails()) return remember(fail(call, failure));
  if (call.machine().settings().driver < CUDART_VERSION) return remember(cudaErrorInsufficientDriver);
  if (call.machine().device_count() == 0) return remember(cudaErrorNoDevice);
  return remember(function(call));
}

// A call that also reports what has failed on the device since.
template <class Function>
cudaError_t run(const char* name, cudaError_t failure, const Function& function) {
  return query(name, failure, [&](const Call& call) {
    if (const cudaError_t fault = call.device().fault; fault != cudaSuccess) return fault;
    return function(call);
  });
}

// The order between other streams and the default one is not emulated.
cudaError_t create_stream(const char* function, cudaStream_t* stream, unsigned int flags) {
  return run(function, cudaErrorUnknown, [&](const Call& call) {
    if (flags != cudaStreamNonBlocking) return cudaErrorNotSupported;
    *stream = call.machine().add_stream(call.machine().current_device());
    return cudaSuccess;
  });
}

bool exists(const Call& call, int device) {
  return device >= 0 && device < call.machine().device_count();
}

void fail_device(Machine& machine, int device, cudaError_t error) {
  machine.device(device).fault = error;
}

bool is_pinned(Machine& machine, const void* memory, std::size_t bytes) {
  const auto& pinned = machine.pinned();
  auto after = pinned.upper_bound(static_cast<const char*>(memory));
  if (after == pinned.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return static_cast<const char*>(memory) + bytes <= begin + size;
}

// Whether the range may be used as the direction says: memory of a device, or of the host.
bool is_device_range(Machine& machine, const void* memory, std::size_t bytes) {
  Device* const owner = machine.owner(memory);
  return owner != nullptr && owner->memory.is_allocated(memory, bytes);
}
bool is_host_range(Machine& machine, const void* memory) {
  return memory != nullptr && machine.owner(memory) == nullptr;
}

bool fits(Machine& machine, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return is_device_range(machine, to, bytes) && is_host_range(machine, from);
    case cudaMemcpyDeviceToHost:
      return is_host_range(machine, to) && is_device_range(machine, from, bytes);
    case cudaMemcpyDeviceToDevice:
      return is_device_range(machine, to, bytes) && is_device_range(machine, from, bytes);
    default:
      return false;
  }
}

Operation copy(void* to, const void* from, std::size_t bytes) {
  return [=] {
    std::memmove(to, from, bytes);
    return true;
  };
}

// Memory of the host that is not page-locked is read before the call returns, and written before it returns.
cudaError_t copy_async(const Call& call, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                       CUstream_st* stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  Machine& machine = call.machine();
  if (!fits(machine, to, from, bytes, kind)) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyHostToDevice && !is_pinned(machine, from, bytes)) {
    const std::shared_ptr<char[]> staged(new char[bytes]);
    std::memcpy(staged.get(), from, bytes);
    machine.enqueue(stream, [=] {
      std::memcpy(to, staged.get(), bytes);
      return true;
    });
    return cudaSuccess;
  }
  machine.enqueue(stream, copy(to, from, bytes));
  if (kind == cudaMemcpyDeviceToHost && !is_pinned(machine, to, bytes)) {
    machine.work_until([&] { return stream->operations.empty(); });
    return machine.device(stream->device).fault;
  }
  return cudaSuccess;
}

cudaError_t allocate(const Call& call, Device& device, void** memory, std::size_t bytes, DeviceMemory::Source source) {
  *memory = device.memory.allocate(bytes, source);
  if (*memory == nullptr) {  // what is to be released on a stream may make room
    call.machine().work_while_possible();
    *memory = device.memory.allocate(bytes, source);
  }
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

Operation set_bytes(void* memory, int value, std::size_t bytes) {
  return [=] {
    std::memset(memory, value, bytes);
    return true;
  };
}

// The bytes of new memory: not a number, in each floating-point format.
constexpr int unset = 0xff;

cudaError_t wait_for_device(const Call& call) {
  Machine& machine = call.machine();
  const int device = machine.current_device();
  machine.work_until([&] { return machine.is_idle(device); });
  return machine.device(device).fault;
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

Operation run_kernel(Machine& machine, int device, const cudaLaunchConfig_t& config, std::function<void()> thread) {
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
Operation faulty_kernel(Machine& machine, int device, cudaError_t fault) {
  return [&machine, device, fault] {
    fail_device(machine, device, fault);
    return true;
  };
}

int shared_memory_limit(const Settings& settings) {
  if (settings.major >= 9) return 227 * 1024;
  if (settings.major == 8) return settings.minor == 0 ? 163 * 1024 : 99 * 1024;
  return 64 * 1024;
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

// --- devices

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

// --- errors

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
  return last_error;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define DDPRUN_NAME(name) \
  case name:              \
    return #name
    DDPRUN_NAME(cudaSuccess);
    DDPRUN_NAME(cudaErrorInvalidValue);
    DDPRUN_NAME(cudaErrorMemoryAllocation);
    DDPRUN_NAME(cudaErrorInitializationError);
    DDPRUN_NAME(cudaErrorInvalidConfiguration);
    DDPRUN_NAME(cudaErrorInvalidMemcpyDirection);
    DDPRUN_NAME(cudaErrorInsufficientDriver);
    DDPRUN_NAME(cudaErrorDevicesUnavailable);
    DDPRUN_NAME(cudaErrorInvalidDeviceFunction);
    DDPRUN_NAME(cudaErrorNoDevice);
    DDPRUN_NAME(cudaErrorInvalidDevice);
    DDPRUN_NAME(cudaErrorInvalidKernelImage);
    DDPRUN_NAME(cudaErrorNoKernelImageForDevice);
    DDPRUN_NAME(cudaErrorECCUncorrectable);
    DDPRUN_NAME(cudaErrorInvalidPtx);
    DDPRUN_NAME(cudaErrorNvlinkUncorrectable);
    DDPRUN_NAME(cudaErrorUnsupportedPtxVersion);
    DDPRUN_NAME(cudaErrorContained);
    DDPRUN_NAME(cudaErrorInvalidResourceHandle);
    DDPRUN_NAME(cudaErrorNotReady);
    DDPRUN_NAME(cudaErrorIllegalAddress);
    DDPRUN_NAME(cudaErrorLaunchOutOfResources);
    DDPRUN_NAME(cudaErrorLaunchTimeout);
    DDPRUN_NAME(cudaErrorPeerAccessAlreadyEnabled);
    DDPRUN_NAME(cudaErrorAssert);
    DDPRUN_NAME(cudaErrorHardwareStackError);
    DDPRUN_NAME(cudaErrorIllegalInstruction);
    DDPRUN_NAME(cudaErrorMisalignedAddress);
    DDPRUN_NAME(cudaErrorInvalidAddressSpace);
    DDPRUN_NAME(cudaErrorInvalidPc);
    DDPRUN_NAME(cudaErrorLaunchFailure);
    DDPRUN_NAME(cudaErrorNotPermitted);
    DDPRUN_NAME(cudaErrorNotSupported);
    DDPRUN_NAME(cudaErrorSystemNotReady);
    DDPRUN_NAME(cudaErrorSystemDriverMismatch);
    DDPRUN_NAME(cudaErrorUnknown);
#undef DDPRUN_NAME
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorMisalignedAddress:
      return "misaligned address";
    case cudaErrorAssert:
      return "device-side assert triggered";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorDevicesUnavailable:
      return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorUnknown:
      return "unknown error";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorECCUncorrectable:
      return "uncorrectable ECC error encountered";
    default:
      return cudaGetErrorName(error);
  }
}

// --- memory

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return run("cudaMemGetInfo", cudaErrorUnknown, [&](const Call& call) {
    const DeviceMemory& memory = call.device().memory;
    *total = memory.capacity();
    *free = memory.capacity() - memory.used();
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** devPtr, size_t size) {
  return run("cudaMalloc", cudaErrorMemoryAllocation, [&](const Call& call) {
    *devPtr = nullptr;
    if (size == 0) return cudaSuccess;
    const cudaError_t error = allocate(call, call.device(), devPtr, size, DeviceMemory::Source::device);
    if (error != cudaSuccess) return error;
    const Machine::OpenMemory open(call.machine());
    std::memset(*devPtr, unset, size);
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* devPtr) {
  return run("cudaFree", cudaErrorUnknown, [&](const Call& call) {
    if (devPtr == nullptr) return cudaSuccess;
    Device* const owner = call.machine().owner(devPtr);
    if (owner == nullptr || !owner->memory.is_allocated(devPtr, 1)) return cudaErrorInvalidValue;
    const int device = owner->default_stream.device;
    call.machine().work_until([&] { return call.machine().is_idle(device); });
    return owner->memory.free(devPtr) ? owner->fault : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMallocAsync(void** devPtr, size_t size, cudaStream_t hStream) {
  return run("cudaMallocAsync", cudaErrorMemoryAllocation, [&](const Call& call) {
    CUstream_st* const stream = call.machine().find_stream(hStream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *devPtr = nullptr;
    if (size == 0) return cudaSuccess;
    Device& device = call.machine().device(stream->device);
    const cudaError_t error = allocate(call, device, devPtr, size, DeviceMemory::Source::pool);
    if (error == cudaSuccess) call.machine().enqueue(stream, set_bytes(*devPtr, unset, size), Duration::none);
    return error;
  });
}

cudaError_t cudaFreeAsync(void* devPtr, cudaStream_t hStream) {
  return run("cudaFreeAsync", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const stream = call.machine().find_stream(hStream);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (devPtr == nullptr) return cudaSuccess;
    Device* const owner = call.machine().owner(devPtr);
    if (owner == nullptr || !owner->memory.is_allocated(devPtr, 1)) return cudaErrorInvalidValue;
    const auto release = [owner, devPtr] {
      owner->memory.free(devPtr);
      return true;
    };
    call.machine().enqueue(stream, release, Duration::none);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* memPool, int device) {
  return run("cudaDeviceGetDefaultMemPool", cudaErrorUnknown, [&](const Call& call) {
    if (!exists(call, device)) return cudaErrorInvalidDevice;
    *memPool = &call.machine().device(device).pool;
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
  return run("cudaMemPoolSetAttribute", cudaErrorUnknown, [&](const Call&) {
    return memPool == nullptr || value == nullptr || attr != cudaMemPoolAttrReleaseThreshold ? cudaErrorInvalidValue
                                                                                             : cudaSuccess;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t memPool, cudaMemPoolAttr attr, void* value) {
  return run("cudaMemPoolGetAttribute", cudaErrorUnknown, [&](const Call& call) {
    if (memPool == nullptr || value == nullptr) return cudaErrorInvalidValue;
    if (attr != cudaMemPoolAttrReservedMemCurrent && attr != cudaMemPoolAttrUsedMemCurrent)
      return cudaErrorInvalidValue;
    const DeviceMemory& memory = call.machine().device(memPool->device).memory;
    const std::uint64_t bytes = attr == cudaMemPoolAttrUsedMemCurrent ? memory.pool_used() : memory.pool_reserved();
    std::memcpy(value, &bytes, sizeof bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep) {
  return run("cudaMemPoolTrimTo", cudaErrorUnknown, [&](const Call& call) {
    if (memPool == nullptr) return cudaErrorInvalidValue;
    call.machine().device(memPool->device).memory.trim_pool(minBytesToKeep);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** pHost, size_t size, unsigned int) {
  return run("cudaHostAlloc", cudaErrorMemoryAllocation, [&](const Call& call) {
    constexpr std::size_t page = 4096;
    *pHost = std::aligned_alloc(page, (std::max<std::size_t>(size, 1) + page - 1) / page * page);
    if (*pHost == nullptr) return cudaErrorMemoryAllocation;
    call.machine().pinned().emplace(static_cast<const char*>(*pHost), size);
    return cudaSuccess;
  });
}

cudaError_t cudaMallocHost(void** ptr, size_t size) {
  return cudaHostAlloc(ptr, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* ptr) {
  return query("cudaFreeHost", cudaErrorUnknown, [&](const Call& call) {
    if (ptr == nullptr) return cudaSuccess;
    Machine& machine = call.machine();
    if (machine.pinned().erase(static_cast<const char*>(ptr)) == 0) return cudaErrorInvalidValue;
    machine.work_while_possible();  // what is queued may use it
    std::free(ptr);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* ptr) {
  return query("cudaPointerGetAttributes", cudaErrorUnknown, [&](const Call& call) {
    std::memset(attributes, 0, sizeof *attributes);
    attributes->device = -1;
    void* const memory = const_cast<void*>(ptr);
    if (Device* const owner = call.machine().owner(ptr)) {
      attributes->type = cudaMemoryTypeDevice;
      attributes->device = owner->default_stream.device;
      attributes->devicePointer = memory;
    } else if (is_pinned(call.machine(), ptr, 1)) {
      attributes->type = cudaMemoryTypeHost;
      attributes->device = call.machine().current_device();
      attributes->devicePointer = attributes->hostPointer = memory;
    } else {
      attributes->hostPointer = memory;
    }
    return cudaSuccess;
  });
}

// --- copies

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return run("cudaMemcpy", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const stream = call.machine().find_stream(nullptr);
    if (const cudaError_t error = copy_async(call, dst, src, count, kind, stream); error != cudaSuccess) return error;
    call.machine().work_until([&] { return stream->operations.empty(); });
    return call.device().fault;
  });
}

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  return run("cudaMemcpyAsync", cudaErrorUnknown, [&](const Call& call) {
    return copy_async(call, dst, src, count, kind, call.machine().find_stream(stream));
  });
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice, size_t count,
                                cudaStream_t stream) {
  return run("cudaMemcpyPeerAsync", cudaErrorUnknown, [&](const Call& call) {
    if (!exists(call, dstDevice) || !exists(call, srcDevice)) return cudaErrorInvalidDevice;
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr) return cudaErrorInvalidResourceHandle;
    if (count == 0) return cudaSuccess;
    if (!call.machine().device(dstDevice).memory.is_allocated(dst, count) ||
        !call.machine().device(srcDevice).memory.is_allocated(src, count))
      return cudaErrorInvalidValue;
    call.machine().enqueue(queue, copy(dst, src, count));
    return cudaSuccess;
  });
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count, cudaStream_t stream) {
  return run("cudaMemsetAsync", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr) return cudaErrorInvalidResourceHandle;
    if (count == 0) return cudaSuccess;
    if (!is_device_range(call.machine(), devPtr, count)) return cudaErrorInvalidValue;
    call.machine().enqueue(queue, set_bytes(devPtr, value, count));
    return cudaSuccess;
  });
}

// --- streams

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned int flags, int) {
  return create_stream("cudaStreamCreateWithPriority", pStream, flags);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned int flags) {
  return create_stream("cudaStreamCreateWithFlags", pStream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return run("cudaDeviceGetStreamPriorityRange", cudaErrorUnknown, [&](const Call&) {
    *leastPriority = 0;
    *greatestPriority = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return query("cudaStreamDestroy", cudaErrorUnknown, [&](const Call& call) {
    if (stream == nullptr || call.machine().find_stream(stream) == nullptr) return cudaErrorInvalidResourceHandle;
    call.machine().work_until([&] { return stream->operations.empty(); });
    call.machine().remove_stream(stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return run("cudaStreamSynchronize", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr) return cudaErrorInvalidResourceHandle;
    call.machine().work_until([&] { return queue->operations.empty(); });
    return call.machine().device(queue->device).fault;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return run("cudaStreamQuery", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr) return cudaErrorInvalidResourceHandle;
    call.machine().work_some();
    return queue->operations.empty() ? call.machine().device(queue->device).fault : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  return run("cudaStreamWaitEvent", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr || !call.machine().has_event(event)) return cudaErrorInvalidResourceHandle;
    const auto wait = [queue, state = event->state, awaited = event->state->recorded] {
      if (state->reached < awaited) return false;
      queue->time = std::max(queue->time, state->time);
      return true;
    };
    call.machine().enqueue(queue, wait, Duration::none);
    return cudaSuccess;
  });
}

// --- events

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return run("cudaEventCreateWithFlags", cudaErrorUnknown, [&](const Call& call) {
    *event = call.machine().add_event(call.machine().current_device(), (flags & cudaEventDisableTiming) == 0);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return run("cudaEventRecord", cudaErrorUnknown, [&](const Call& call) {
    CUstream_st* const queue = call.machine().find_stream(stream);
    if (queue == nullptr || !call.machine().has_event(event) || queue->device != event->device)
      return cudaErrorInvalidResourceHandle;
    const auto reach = [queue, state = event->state, recorded = ++event->state->recorded] {
      state->reached = recorded;
      state->time = queue->time;
      return true;
    };
    call.machine().enqueue(queue, reach, Duration::none);
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return run("cudaEventQuery", cudaErrorUnknown, [&](const Call& call) {
    if (!call.machine().has_event(event)) return cudaErrorInvalidResourceHandle;
    call.machine().work_some();
    return event->state->reached == event->state->recorded ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return run("cudaEventSynchronize", cudaErrorUnknown, [&](const Call& call) {
    if (!call.machine().has_event(event)) return cudaErrorInvalidResourceHandle;
    call.machine().work_until([&] { return event->state->reached == event->state->recorded; });
    return call.machine().device(event->device).fault;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return run("cudaEventElapsedTime", cudaErrorUnknown, [&](const Call& call) {
    if (!call.machine().has_event(start) || !call.machine().has_event(end) || !start->is_timed || !end->is_timed)
      return cudaErrorInvalidResourceHandle;
    for (const cudaEvent_t event : {start, end}) {
      if (event->state->recorded == 0) return cudaErrorInvalidResourceHandle;
      if (event->state->reached != event->state->recorded) return cudaErrorNotReady;
    }
    *ms = std::chrono::duration<float, std::milli>(end->state->time - start->state->time).count();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return query("cudaEventDestroy", cudaErrorUnknown, [&](const Call& call) {
    return call.machine().remove_event(event) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

// --- kernels

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
