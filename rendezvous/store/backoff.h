#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace ddprun {

// Exponential backoff with jitter, in milliseconds. A value; the caller does the waiting. The first delay is short: on
// one machine the server usually starts within milliseconds.
struct Backoff {
  std::chrono::duration<double, std::milli> interval{5};  // delay before the next attempt
  double factor = 1.5;
  std::chrono::duration<double, std::milli> cap{2'000};
  double jitter = 0.5;  // a delay is uniform in interval * (1 - jitter) to interval * (1 + jitter)

  template <class Generator>
  std::chrono::nanoseconds next(Generator& generator) {
    std::uniform_real_distribution<double> spread(1 - jitter, 1 + jitter);
    const auto delay = interval * spread(generator);
    interval = std::min(interval * factor, cap);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(delay);
  }
};

}  // namespace ddprun
