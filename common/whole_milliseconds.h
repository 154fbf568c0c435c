#pragma once

#include <algorithm>
#include <chrono>

#include "common/deadline.h"

namespace ddprun {

// Returns the time until the deadline for libraries that count milliseconds: rounded up, at least 1, at most a year.
inline std::chrono::milliseconds whole_milliseconds(const Deadline& deadline,
                                                    Deadline::Clock::time_point now = Deadline::Clock::now()) {
  using std::chrono::milliseconds;
  return std::clamp(std::chrono::ceil<milliseconds>(deadline.remaining(now)), milliseconds(1),
                    milliseconds(std::chrono::hours(24 * 365)));
}

}  // namespace ddprun
