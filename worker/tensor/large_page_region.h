#pragma once

#include <cstddef>

namespace ddprun {

// Address space in which blocks that do not fill large pages lie side by side, so that they share such pages.
//
// Ownership: the memory belongs to the process until its end; a page takes memory once it is used, and keeps it.
// Threads: one at a time. Errors: none.
class LargePageRegion {
 public:
  // bytes: a multiple of large_page. The address space is taken with the first block.
  explicit LargePageRegion(std::size_t bytes) : bytes_(bytes) {}

  // Returns the next block, behind the one before, or null if there is no room for it.
  void* take(std::size_t bytes);
  bool contains(const void* block) const;
  std::size_t taken() const { return taken_; }

 private:
  std::byte* map();
  bool make_usable(std::size_t bytes);

  std::size_t bytes_;  // 0: the system has no room
  std::byte* begin_ = nullptr;
  std::size_t taken_ = 0, usable_ = 0;
};

}  // namespace ddprun
