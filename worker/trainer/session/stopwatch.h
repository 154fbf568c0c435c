#pragma once

#include <chrono>

namespace ddprun::trainer {

using Seconds = std::chrono::duration<double>;

// Measures the time since its construction or the last call of lap().
class Stopwatch {
 public:
  Seconds lap() {
    const auto now = Clock::now();
    const Seconds passed = now - from_;
    from_ = now;
    return passed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point from_ = Clock::now();
};

}  // namespace ddprun::trainer
