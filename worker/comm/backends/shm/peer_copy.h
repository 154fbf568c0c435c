#pragma once

#include <cstddef>
#include <cstring>

#include "worker/comm/reduce/variant.h"

namespace ddprun::comm {

// Results of this size do not stay in the caches, so they are written past them.
inline constexpr std::size_t past_caches_bytes = 8 << 20;
// From this size on memcpy is faster than kernels().copy: it may write lines without reading them first. Its start-up
// cost is too high for smaller copies.
inline constexpr std::size_t memcpy_bytes = 32 << 10;

// Copies data of another rank into the caller's memory, which is whole_bytes in all and may not be read soon. It does
// not suit memory whose lines were just read: they are in the caches already.
inline void copy_from_peer(void* to, const void* from, std::size_t bytes, std::size_t whole_bytes) {
  if (whole_bytes >= past_caches_bytes) return kernels().copy_past_caches(to, from, bytes);
  if (bytes < memcpy_bytes) return kernels().copy(to, from, bytes);
  std::memcpy(to, from, bytes);
}

}  // namespace ddprun::comm
