// Memory of the CUDA runtime, and copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

#include "common/rounding.h"
#include "worker/cuda/emulator/runtime_call.h"

namespace ddprun::cuda::emulator {
namespace {

bool is_pinned(Machine& machine, const void* memory, std::size_t bytes) {
  const auto& pinned = machine.pinned();
  auto after = pinned.upper_bound(static_cast<const char*>(memory));
  if (after == pinned.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return static_cast<const char*>(memory) + bytes <= begin + size;
}

// Returns whether the range may be used as the direction says: memory of a device, or of the host.
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

StreamOperation copy(void* to, const void* from, std::size_t bytes) {
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
  if (*memory == nullptr) {  // queued releases may free enough memory
    call.machine().work_while_possible();
    *memory = device.memory.allocate(bytes, source);
  }
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

StreamOperation set_bytes(void* memory, int value, std::size_t bytes) {
  return [=] {
    std::memset(memory, value, bytes);
    return true;
  };
}

// The bytes of new memory: they are not a number, in each floating-point format.
constexpr int unset = 0xff;

}  // namespace
}  // namespace ddprun::cuda::emulator

using namespace ddprun::cuda::emulator;

extern "C" {

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
    *pHost = std::aligned_alloc(page, ddprun::round_up(std::max<std::size_t>(size, 1), page));
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
    machine.work_while_possible();  // queued work may use it
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
}  // extern "C"
