#pragma once

#include <chrono>
#include <cstdint>

namespace ddprun {

// The time since the epoch: for what is shown, stored or sent to other machines, whose clocks may differ. It may jump,
// so deadlines and durations take the steady clock.
inline std::chrono::milliseconds wall_clock() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch());
}
// Returns the same time in microseconds.
inline std::int64_t wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace ddprun
