#pragma once

#include <cstdint>

namespace ddprun::bench {

// The record that a worker of the restart benchmark writes to its FIFO when it runs: one write, whole or not at all.
struct RestartRecord {
  std::int32_t pid = 0;
  std::int32_t rank = 0;
  std::int32_t attempt = 0;
  std::int64_t time_ns = 0;  // CLOCK_MONOTONIC, the same for all processes of a machine
};

}  // namespace ddprun::bench
