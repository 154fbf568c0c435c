#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

namespace ddprun::rendezvous {

// A rate limit for log lines that a port scan or a broken client can cause: at most `burst` lines per window.
//
// A value; times are passed in. Threads: not thread-safe. Errors: none.
class LogLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::size_t burst = 10;  // lines
    std::chrono::milliseconds window{10'000};
  };
  explicit LogLimiter(const Options& options) : options_(options) {}

  // Returns nullopt if the line is not to be logged, otherwise the number of lines suppressed since the last one.
  std::optional<std::size_t> admit(Clock::time_point now) {
    if (!window_start_ || now - *window_start_ >= options_.window) {
      window_start_ = now;
      in_window_ = 0;
    }
    if (in_window_ == options_.burst) {
      ++suppressed_;
      return std::nullopt;
    }
    ++in_window_;
    return std::exchange(suppressed_, 0);
  }

 private:
  Options options_;
  std::optional<Clock::time_point> window_start_;
  std::size_t in_window_ = 0;
  std::size_t suppressed_ = 0;
};

}  // namespace ddprun::rendezvous
