#pragma once

#include <cstddef>
#include <span>

namespace ddprun::checkpoint {

// Copies bytes past the caches where the processor can: what is not read again soon neither evicts what training works
// on, nor is read from memory before it is overwritten. to: a multiple of 64.
void copy_streaming(std::byte* to, std::span<const std::byte> from);

}  // namespace ddprun::checkpoint
