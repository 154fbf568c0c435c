#pragma once

#include <cstddef>
#include <malloc.h>

namespace ddprun::testing {

// The number of bytes that the process has allocated and not freed; 0 under a sanitizer, which checks for leaks itself.
inline std::size_t allocated_bytes() {
  const auto info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace ddprun::testing
