#pragma once

#include <cstdint>

namespace ddprun::trainer {

// Streams of the run's seed: one for each use, so that no two uses draw the same numbers.
inline constexpr std::uint64_t parameter_stream = 1;

}  // namespace ddprun::trainer
