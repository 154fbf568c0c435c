#pragma once

#include <cstdint>

namespace ddprun {

// The options of PyTorch's PowerSGDState, with its names and defaults.
struct PowerSgdOptions {
  std::int64_t matrix_approximation_rank = 1;
  std::int64_t start_powerSGD_iter = 1000;  // passes before it are averaged as they are
  bool use_error_feedback = true;
  bool warm_start = true;
  double min_compression_rate = 2;  // a parameter whose factors are not so many times smaller is not compressed
  std::uint64_t random_seed = 0;
};

}  // namespace ddprun
