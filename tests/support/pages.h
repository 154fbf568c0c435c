#pragma once

#include <algorithm>
#include <cstddef>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "common/rounding.h"

namespace ddprun::testing {

// Returns whether the kernel has given all pages of this memory, which begins at one. Errors: false.
inline bool has_pages(const void* memory, std::size_t bytes) {
  std::vector<unsigned char> pages(divide_up(bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))));
  if (::mincore(const_cast<void*>(memory), bytes, pages.data()) != 0) return false;
  return std::ranges::all_of(pages, [](unsigned char each) { return (each & 1) != 0; });
}

}  // namespace ddprun::testing
