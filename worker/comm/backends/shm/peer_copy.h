#pragma once

#include <cstddef>

#include "worker/comm/reduce/variant.h"

namespace ddprun::comm {

// Results of this size do not stay in the caches, so they are written past them.
inline constexpr std::size_t past_caches_bytes = 8 << 20;

// Copies data of another rank into the caller's memory, which is whole_bytes in all and may not be read soon. It does
// not suit memory whose lines were just read: they are in the caches already.
inline void copy_from_peer(void* to, const void* from, std::size_t bytes, std::size_t whole_bytes) {
  if (whole_bytes >= past_caches_bytes) return kernels().copy_past_caches(to, from, bytes);
  kernels().copy_from_peer(to, from, bytes);
}

}  // namespace ddprun::comm
