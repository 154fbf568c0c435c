#include "worker/tensor/large_page_region.h"

#include <cstdint>
#include <functional>
#include <sys/mman.h>

#include "common/rounding.h"
#include "worker/tensor/large_pages.h"

namespace ddprun {

void* LargePageRegion::take(std::size_t bytes) {
  if (bytes > bytes_ - taken_) return nullptr;
  if (!begin_) begin_ = map();
  if (!begin_) {
    bytes_ = 0;
    return nullptr;
  }
  if (!make_usable(taken_ + bytes)) return nullptr;
  void* const block = begin_ + taken_;
  taken_ += bytes;
  return block;
}

bool LargePageRegion::contains(const void* block) const {
  const std::less<const void*> before;
  return begin_ && !before(block, begin_) && before(block, begin_ + bytes_);
}

// Makes whole pages usable up to that many bytes. What is not usable yet does not count against a limit of the
// process's memory (ulimit -d). Returns false if the limit is reached.
bool LargePageRegion::make_usable(std::size_t bytes) {
  const auto end = round_up(bytes, large_page);
  if (end <= usable_) return true;
  if (::mprotect(begin_ + usable_, end - usable_, PROT_READ | PROT_WRITE) != 0) return false;
  usable_ = end;
  return true;
}

// Returns null if the system has no room.
std::byte* LargePageRegion::map() {
  void* const memory =
      ::mmap(nullptr, bytes_ + large_page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  auto* const begin = static_cast<std::byte*>(memory) + (round_up(address, large_page) - address);
  prefer_large_pages(begin, bytes_);
  return begin;
}

}  // namespace ddprun
