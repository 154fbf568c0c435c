#pragma once

#include <cstddef>
#include <memory>

namespace ddprun {

// Every tensor's own memory starts at a multiple of this many bytes: a cache line, and a vector register of AVX-512.
inline constexpr std::size_t storage_alignment = 64;

// Uninitialised memory that returns to a process-wide cache of freed blocks when its last owner lets go. A training
// step allocates the same sizes again and again; without the cache every large one costs page faults. Throws
// std::bad_alloc. Thread-safe.
std::shared_ptr<void> allocate_storage(std::size_t bytes);

}  // namespace ddprun
