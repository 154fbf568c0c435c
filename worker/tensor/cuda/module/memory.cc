#include "worker/tensor/cuda/module/memory.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>

#include "common/byte_text.h"
#include "common/memory_exhausted.h"
#include "worker/tensor/cuda/module/check.h"

namespace ddprun::cuda {

Memory::Memory(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {
  check(cudaDeviceGetDefaultMemPool(&pool_, ordinal), "cudaDeviceGetDefaultMemPool");
  std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all), "cudaMemPoolSetAttribute");
}

void* Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  cudaError_t status = cudaMallocAsync(&memory, bytes, stream_);
  if (status == cudaErrorMemoryAllocation) {
    give_back_kept();
    status = cudaMallocAsync(&memory, bytes, stream_);
  }
  if (status == cudaErrorMemoryAllocation) throw_exhausted(bytes);
  check(status, "cudaMallocAsync");
  allocated_.fetch_add(bytes, std::memory_order_relaxed);
  return memory;
}

void Memory::release(void* memory, std::size_t bytes) {
  if (memory == nullptr) return;
  // This call fails only where all that follows fails too: the device is lost.
  cudaFreeAsync(memory, stream_);
  allocated_.fetch_sub(bytes, std::memory_order_relaxed);
}

DeviceMemoryFacts Memory::facts() const {
  std::uint64_t reserved = 0;
  check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved), "cudaMemPoolGetAttribute");
  DeviceMemoryFacts facts{.allocated = allocated_, .reserved = reserved, .free = 0, .total = 0};
  check(cudaMemGetInfo(&facts.free, &facts.total), "cudaMemGetInfo");
  return facts;
}

// Memory released on the stream is the pool's once the stream gets there; the pool may keep memory of other sizes.
void Memory::give_back_kept() {
  cudaGetLastError();
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  check(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
}

void Memory::throw_exhausted(std::size_t bytes) const {
  cudaGetLastError();
  const DeviceMemoryFacts held = facts();
  throw MemoryExhausted(
      ordinal_, bytes,
      fmt::format("cuda:{} is out of memory: {} wanted, {} of {} are free; this process has {}", ordinal_,
                  byte_text(bytes), byte_text(held.free), byte_text(held.total), byte_text(held.allocated)));
}

}  // namespace ddprun::cuda
