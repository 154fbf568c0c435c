#pragma once

#include <algorithm>
#include <chrono>
#include <random>

namespace ddprun {

// Delays between tries: exponential with jitter. Returns the next delay in place of sleeping, so that the caller waits
// in its own way. The first is short: on one machine the server is usually a few milliseconds behind.
struct Backoff {
  std::chrono::duration<double, std::milli> interval{5};  // of the next try
  double factor = 1.5;
  std::chrono::duration<double, std::milli> cap{2'000};
  double jitter = 0.5;  // each delay is drawn from interval * (1 - jitter) to interval * (1 + jitter)

  template <class Generator>
  std::chrono::nanoseconds next(Generator& generator) {
    std::uniform_real_distribution<double> spread(1 - jitter, 1 + jitter);
    const auto delay = interval * spread(generator);
    interval = std::min(interval * factor, cap);
    return std::chrono::duration_cast<std::chrono::nanoseconds>(delay);
  }
};

}  // namespace ddprun
