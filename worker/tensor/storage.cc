#include "worker/tensor/storage.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/rounding.h"
#include "worker/tensor/allocation_count.h"
#include "worker/tensor/cuda/cuda_device.h"
#include "worker/tensor/cuda/pinned_memory.h"
#include "worker/tensor/large_page_region.h"
#include "worker/tensor/large_pages.h"
#include "worker/tensor/memory_account.h"
#include "worker/tensor/sanitized.h"
#include "worker/tensor/shape_only.h"

namespace ddprun {
namespace {

#if defined(DDPRUN_SANITIZED)
constexpr bool cache_blocks = false;  // a use after the last owner let go has to be seen
#else
constexpr bool cache_blocks = true;
#endif

// Small blocks are left to malloc; of large ones the cache keeps at most this much.
constexpr std::size_t smallest_cached = 4096;
constexpr std::size_t cache_limit_bytes = std::size_t{256} << 20;
constexpr std::size_t region_bytes = cache_limit_bytes / 2;
// A block with pages of its own has small ones at its end, which fills no large page: up to 511 page faults.
constexpr std::size_t largest_of_region = 4 * large_page;

void* aligned_block(std::size_t bytes) {
  const bool is_large = bytes >= large_page;
  void* block = nullptr;
  if (::posix_memalign(&block, is_large ? large_page : storage_alignment, bytes) != 0) throw std::bad_alloc();
  prefer_large_pages(block, bytes);
  return block;
}

// Freed blocks by size. The first ones of up to largest_of_region are parts of a region, which is never freed: they
// count against the limit even while they are used.
class BlockCache {
 public:
  void* take(std::size_t bytes) {
    if (bytes >= smallest_cached && cache_blocks) {
      std::lock_guard lock(mutex_);
      auto found = free_.find(bytes);
      if (found != free_.end() && !found->second.empty()) {
        void* block = found->second.back();
        found->second.pop_back();
        if (!region_.contains(block)) held_bytes_ -= bytes;
        return block;
      }
      if (bytes <= largest_of_region)
        if (void* const block = region_.take(bytes)) return block;
    }
    return aligned_block(bytes);
  }

  void release(void* block, std::size_t bytes) noexcept {
    if (bytes >= smallest_cached && cache_blocks && keep(block, bytes)) return;
    std::free(block);
  }

 private:
  bool keep(void* block, std::size_t bytes) noexcept {
    std::lock_guard lock(mutex_);
    const bool of_region = region_.contains(block);
    if (!of_region && held_bytes_ + region_.taken() + bytes > cache_limit_bytes) return false;
    try {
      free_[bytes].push_back(block);
    } catch (const std::bad_alloc&) {
      return of_region;  // the block is lost
    }
    if (!of_region) held_bytes_ += bytes;
    return true;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::size_t held_bytes_ = 0;  // of free blocks outside the region
  LargePageRegion region_{region_bytes};
};

thread_local MemoryWatch* watch = nullptr;
thread_local AllocationCount allocation_count;

// Returns the freed blocks of a CPU device. Never destroyed: tensors in static objects may outlive them otherwise.
BlockCache& cache_of(Device device) {
  static auto* caches = new std::array<BlockCache, max_devices>;
  return caches->at(static_cast<std::size_t>(device.index));
}

void* take(std::size_t bytes, Device device) {
  return device.type == DeviceType::cpu ? cache_of(device).take(bytes) : cuda::allocate(bytes, device);
}

void give_back(void* block, std::size_t bytes, Device device) noexcept {
  if (device.type == DeviceType::cpu)
    cache_of(device).release(block, bytes);
  else
    cuda::release(block, bytes, device);
}

// Rounds up so that nearly equal sizes share blocks: to a multiple of an eighth of the power of two below.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max(storage_alignment, std::bit_floor(std::max<std::size_t>(bytes, 1)) / 8);
  return std::max(storage_alignment, round_up(bytes, step));
}

}  // namespace

Storage::Storage(void* data, std::size_t bytes, Device device, std::shared_ptr<void> owner, std::size_t block_bytes)
    : data_(data), bytes_(bytes), block_bytes_(block_bytes), owner_(std::move(owner)), device_(device) {}

std::shared_ptr<Storage> Storage::allocate(std::size_t bytes, Device device) {
  const std::size_t size = rounded(bytes);
  std::shared_ptr<void> reserved;  // set instead of memory of the device
  if (device.type == DeviceType::cpu && shapes_only()) reserved = reserve_block(size);
  void* block = reserved ? reserved.get() : take(size, device);
  const MemoryOwner owner = memory_owner();
  MemoryAccount::of(device).add(owner, size);
  ++allocation_count.allocations;
  allocation_count.bytes += static_cast<std::int64_t>(size);
  if (watch) watch->add(static_cast<std::int64_t>(size), device);
  std::shared_ptr<Storage> storage(new Storage(block, bytes, device, std::move(reserved), size));
  storage->counted_for_ = owner;
  return storage;
}

std::shared_ptr<Storage> Storage::wrap(void* data, std::size_t bytes, Device device, std::shared_ptr<void> owner) {
  return std::shared_ptr<Storage>(new Storage(data, bytes, device, std::move(owner), 0));
}

std::shared_ptr<Storage> Storage::allocate_scratch(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  std::shared_ptr<void> block(take(size, Device{}), [size](void* memory) { give_back(memory, size, Device{}); });
  return wrap(block.get(), bytes, Device{}, block);
}

std::shared_ptr<Storage> Storage::allocate_pinned(std::size_t bytes) {
  std::shared_ptr<void> memory = cuda::allocate_pinned(rounded(bytes));
  void* const data = memory.get();
  std::shared_ptr<Storage> storage = wrap(data, bytes, Device{}, std::move(memory));
  storage->pinned_ = true;
  return storage;
}

Storage::~Storage() {
  if (block_bytes_ == 0) return;
  MemoryAccount::of(device_).remove(counted_for_, block_bytes_);
  if (watch) watch->add(-static_cast<std::int64_t>(block_bytes_), device_);
  if (!owner_) give_back(data_, block_bytes_, device_);
}

MemoryWatch::MemoryWatch() : before_(std::exchange(watch, this)) {}
MemoryWatch::~MemoryWatch() {
  watch = before_;
}

void MemoryWatch::add(std::int64_t bytes, Device device) {
  for (Count* const count : {&all_, device.type == DeviceType::cpu ? &on_cpu_ : &on_cuda_}) {
    count->now += bytes;
    count->peak = std::max(count->peak, count->now);
  }
}

AllocationCount allocations_of_thread() {
  return allocation_count;
}

}  // namespace ddprun
