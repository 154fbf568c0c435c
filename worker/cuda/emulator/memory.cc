#include "worker/cuda/emulator/memory.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include "common/rounding.h"

namespace ddprun::cuda::emulator {
namespace {

constexpr std::size_t alignment = 512;              // that of allocations, as on a device
constexpr std::size_t unit = std::size_t{2} << 20;  // the unit of protection: a large page costs one entry

// AddressSanitizer learns what is allocated, so that it finds a kernel that reads or writes beyond it.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t gap = alignment;  // behind each allocation
void allow(char* memory, std::size_t bytes) {
  __asan_unpoison_memory_region(memory, bytes);
}
void forbid(char* memory, std::size_t bytes) {
  __asan_poison_memory_region(memory, bytes);
}
#else
constexpr std::size_t gap = 0;
void allow(char*, std::size_t) {}
void forbid(char*, std::size_t) {}
#endif

}  // namespace

DeviceMemory::DeviceMemory(std::size_t capacity)
    : capacity_(capacity / alignment * alignment), mapped_(round_up(capacity, unit) + unit) {
  void* const memory = ::mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  const std::size_t ahead =
      round_up(reinterpret_cast<std::uintptr_t>(memory), unit) - reinterpret_cast<std::uintptr_t>(memory);
  base_ = static_cast<char*>(memory) + ahead;
  if (ahead > 0) ::munmap(memory, ahead);
  mapped_ -= ahead;
  ::madvise(base_, mapped_, MADV_HUGEPAGE);
  if (capacity_ > 0) free_.emplace(0, capacity_);
}

DeviceMemory::~DeviceMemory() {
  ::munmap(base_, mapped_);
}

void* DeviceMemory::allocate(std::size_t bytes, Source source) {
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), alignment) + gap;
  const std::size_t reserved = source == Source::pool ? pool_used_ : pool_reserved_;
  if (used_ + reserved + size > capacity_) return nullptr;
  const auto room = std::find_if(free_.begin(), free_.end(), [&](const auto& range) { return range.second >= size; });
  if (room == free_.end()) return nullptr;
  const auto [offset, available] = *room;
  free_.erase(room);
  if (available > size) free_.emplace(offset + size, available - size);
  allocated_.emplace(offset, Block{size, bytes, source});
  count(source, static_cast<std::ptrdiff_t>(size));
  touched_ = std::max(touched_, offset + size);
  forbid(base_ + offset, size);
  allow(base_ + offset, bytes);
  return base_ + offset;
}

bool DeviceMemory::free(void* memory) {
  if (!contains(memory)) return false;
  const auto found = allocated_.find(offset_of(memory));
  if (found == allocated_.end()) return false;
  const std::size_t offset = found->first;
  std::size_t size = found->second.size;
  count(found->second.source, -static_cast<std::ptrdiff_t>(size));
  allocated_.erase(found);
  forbid(base_ + offset, size);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return true;
    }
  }
  free_.emplace(offset, size);
  return true;
}

void DeviceMemory::count(Source source, std::ptrdiff_t bytes) {
  std::size_t& used = source == Source::pool ? pool_used_ : used_;
  used += static_cast<std::size_t>(bytes);
  pool_reserved_ = std::max(pool_reserved_, pool_used_);
}

void DeviceMemory::trim_pool(std::size_t bytes_to_keep) {
  pool_reserved_ = std::max(pool_used_, std::min(pool_reserved_, bytes_to_keep));
}

bool DeviceMemory::contains(const void* memory) const {
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  return at >= base && at < base + capacity_;
}

bool DeviceMemory::is_allocated(const void* memory, std::size_t bytes) const {
  if (!contains(memory)) return false;
  const std::size_t offset = offset_of(memory);
  auto after = allocated_.upper_bound(offset);
  if (after == allocated_.begin()) return false;
  const auto& [begin, block] = *std::prev(after);
  return offset + bytes <= begin + block.bytes;
}

void DeviceMemory::open() {
  if (touched_ > 0) ::mprotect(base_, round_up(touched_, unit), PROT_READ | PROT_WRITE);
}

void DeviceMemory::close() {
  if (touched_ > 0) ::mprotect(base_, round_up(touched_, unit), PROT_NONE);
}

}  // namespace ddprun::cuda::emulator
