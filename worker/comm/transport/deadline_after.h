#pragma once

#include <algorithm>
#include <chrono>

#include "ddprun/common/deadline.h"

namespace ddprun::comm {

// What a longer one is taken for: milliseconds::max() is longer than a clock can count.
inline constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365);

// Of a timeout that a user has set.
inline Deadline deadline_after(std::chrono::milliseconds timeout) {
  return Deadline::in(std::min(timeout, longest_timeout));
}

}  // namespace ddprun::comm
