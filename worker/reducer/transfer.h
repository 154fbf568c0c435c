#pragma once

#include <chrono>
#include <cstddef>

namespace ddprun {

// The reduction of a bucket of gradients, as this rank sees it.
struct Transfer {
  std::size_t bucket = 0;
  std::chrono::steady_clock::time_point start;
  // The time when it was seen to have ended: at the next gradient that was ready, or at the end of the pass.
  std::chrono::steady_clock::time_point end;
};

}  // namespace ddprun
