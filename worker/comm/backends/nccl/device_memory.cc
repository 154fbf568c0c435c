#include "worker/comm/backends/nccl/device_memory.h"

#include <fmt/core.h>

#include "common/byte_text.h"
#include "common/memory_exhausted.h"
#include "worker/comm/backends/nccl/cuda_resources.h"

namespace ddprun::comm {
namespace {

struct Room {
  std::size_t free = 0, total = 0;
};

Room room_of(int device) {
  Room room;
  check_cuda(api().cudaMemGetInfo(&room.free, &room.total), "cudaMemGetInfo", device);
  return room;
}

// Does not wait for the work of a stream: that could be a collective, for which others have to act.
void give_back_kept(int device) {
  cudaMemPool_t pool = nullptr;
  check_cuda(api().cudaDeviceGetDefaultMemPool(&pool, device), "cudaDeviceGetDefaultMemPool", device);
  check_cuda(api().cudaMemPoolTrimTo(pool, 0), "cudaMemPoolTrimTo", device);
}

[[noreturn]] void throw_exhausted(int device, std::size_t bytes, const Room& room) {
  throw MemoryExhausted(device, bytes,
                        fmt::format("cuda:{} is out of memory: {} wanted for communication, {} of {} are free", device,
                                    byte_text(bytes), byte_text(room.free), byte_text(room.total)));
}

}  // namespace

DeviceMemory::DeviceMemory(int device, std::size_t bytes) {
  cudaError_t status = api().cudaMalloc(&data_, bytes);
  if (status == cudaErrorMemoryAllocation) {
    give_back_kept(device);
    status = api().cudaMalloc(&data_, bytes);
    if (status == cudaErrorMemoryAllocation) throw_exhausted(device, bytes, room_of(device));
  }
  check_cuda(status, "cudaMalloc", device);
}

DeviceMemory::~DeviceMemory() {
  api().cudaFree(data_);
}

// NCCL has one result for all errors of CUDA.
void* allocate_for_nccl(int device, std::size_t bytes) {
  void* memory = nullptr;
  ncclResult_t result = api().ncclMemAlloc(&memory, bytes);
  if (result == ncclUnhandledCudaError) {
    give_back_kept(device);
    result = api().ncclMemAlloc(&memory, bytes);
    if (const Room room = room_of(device); result == ncclUnhandledCudaError && room.free < bytes)
      throw_exhausted(device, bytes, room);
  }
  check_nccl(result, "ncclMemAlloc", device);
  return memory;
}

}  // namespace ddprun::comm
