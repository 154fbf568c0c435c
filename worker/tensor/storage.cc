#include "ddprun/worker/tensor/storage.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "ddprun/worker/tensor/sanitized.h"

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

void* aligned_block(std::size_t bytes) {
  void* block = std::aligned_alloc(storage_alignment, bytes);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

// Freed blocks by size.
class BlockCache {
 public:
  void* take(std::size_t bytes) {
    if (bytes >= smallest_cached && cache_blocks) {
      std::lock_guard lock(mutex_);
      auto found = free_.find(bytes);
      if (found != free_.end() && !found->second.empty()) {
        void* block = found->second.back();
        found->second.pop_back();
        held_bytes_ -= bytes;
        return block;
      }
    }
    return aligned_block(bytes);
  }

  void give_back(void* block, std::size_t bytes) noexcept {
    if (bytes >= smallest_cached && cache_blocks && keep(block, bytes)) return;
    std::free(block);
  }

 private:
  bool keep(void* block, std::size_t bytes) noexcept {
    std::lock_guard lock(mutex_);
    if (held_bytes_ + bytes > cache_limit_bytes) return false;
    try {
      free_[bytes].push_back(block);
    } catch (const std::bad_alloc&) {
      return false;
    }
    held_bytes_ += bytes;
    return true;
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::size_t held_bytes_ = 0;
};

// Never destroyed: tensors in static objects may outlive it otherwise.
BlockCache& cache() {
  static auto* instance = new BlockCache;
  return *instance;
}

// Rounded up so that nearly equal sizes share blocks: to a multiple of an eighth of the power of two below.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max(storage_alignment, std::bit_floor(std::max<std::size_t>(bytes, 1)) / 8);
  return std::max(storage_alignment, (bytes + step - 1) / step * step);
}

}  // namespace

std::shared_ptr<void> allocate_storage(std::size_t bytes) {
  const std::size_t size = rounded(bytes);
  void* block = cache().take(size);
  return std::shared_ptr<void>(block, [size](void* freed) { cache().give_back(freed, size); });
}

}  // namespace ddprun
