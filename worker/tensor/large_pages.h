#pragma once

#include <cstddef>
#include <sys/mman.h>

namespace ddprun {

// One page fault for 2 MiB in place of 512, and as little work when the process ends, which others may wait to see.
inline constexpr std::size_t large_page = std::size_t{2} << 20;

// Asks for large pages for the whole ones at the beginning of this memory. Where the kernel has none, or does not give
// any, it has small ones.
inline void prefer_large_pages(void* memory, std::size_t bytes) {
  if (bytes >= large_page) ::madvise(memory, bytes / large_page * large_page, MADV_HUGEPAGE);
}

}  // namespace ddprun
