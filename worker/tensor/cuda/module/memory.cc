#include "ddprun/worker/tensor/cuda/module/memory.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ddprun/common/error.h"
#include "ddprun/worker/tensor/cuda/module/check.h"

namespace ddprun::cuda {
namespace {

std::string size_text(std::size_t bytes) {
  if (bytes >= std::size_t{1} << 30) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= std::size_t{1} << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{} bytes", bytes);
}

}  // namespace

Memory::Memory(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {
  check(cudaDeviceGetDefaultMemPool(&pool_, ordinal), "cudaDeviceGetDefaultMemPool");
  std::uint64_t keep_all = std::numeric_limits<std::uint64_t>::max();
  check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all), "cudaMemPoolSetAttribute");
}

void* Memory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  const cudaError_t status = cudaMallocAsync(&memory, bytes, stream_);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw_exhausted(bytes);
  }
  check(status, "cudaMallocAsync");
  const std::lock_guard lock(mutex_);
  allocated_ += bytes;
  ++counts_[bytes];
  return memory;
}

void Memory::release(void* memory, std::size_t bytes) {
  if (memory == nullptr) return;
  // Fails only where all that follows fails too: the device is lost.
  cudaFreeAsync(memory, stream_);
  const std::lock_guard lock(mutex_);
  allocated_ -= bytes;
  const auto count = counts_.find(bytes);
  if (--count->second == 0) counts_.erase(count);
}

DeviceMemoryFacts Memory::facts() const {
  std::uint64_t reserved = 0;
  check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &reserved), "cudaMemPoolGetAttribute");
  const std::lock_guard lock(mutex_);
  return {.allocated = allocated_, .reserved = reserved};
}

void Memory::throw_exhausted(std::size_t bytes) {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const DeviceMemoryFacts held = facts();
  const std::lock_guard lock(mutex_);
  throw make_error(Errc::io,
                   "cuda:{} is out of memory: {} wanted, {} of {} are free; this process has {} in tensors ({}) and "
                   "keeps {} for the next ones",
                   ordinal_, size_text(bytes), size_text(free), size_text(total), size_text(held.allocated), holdings(),
                   size_text(held.reserved - std::min(held.reserved, held.allocated)));
}

std::string Memory::holdings() const {
  constexpr std::size_t shown = 4;
  std::vector<std::pair<std::size_t, std::size_t>> blocks(counts_.begin(), counts_.end());
  std::sort(blocks.begin(), blocks.end(),
            [](const auto& a, const auto& b) { return a.first * a.second > b.first * b.second; });
  std::vector<std::string> texts;
  for (const auto& [size, count] : blocks) {
    if (texts.size() == shown) break;
    texts.push_back(fmt::format("{} of {}", count, size_text(size)));
  }
  if (blocks.empty()) return "none";
  return fmt::format("{}{}", fmt::join(texts, ", "), blocks.size() > shown ? ", ..." : "");
}

}  // namespace ddprun::cuda
