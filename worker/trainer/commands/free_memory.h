#pragma once

#include <cstddef>
#include <optional>

namespace ddprun::trainer {

// Returns the bytes that new processes can have here without swapping (MemAvailable of /proc/meminfo, and the limit of
// the container); none if neither is known.
std::optional<std::size_t> free_memory();

}  // namespace ddprun::trainer
