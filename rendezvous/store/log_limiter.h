#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

namespace ddprun::rendezvous {

// Keeps a stranger (a port scan, a broken client that redials) from flooding the log: at most burst lines a window.
class LogLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::size_t burst = 10;
    std::chrono::milliseconds window{10'000};
  };
  explicit LogLimiter(const Options& options) : options_(options) {}

  // Null: do not log. Otherwise how many lines were kept back before this one.
  std::optional<std::size_t> admit(Clock::time_point now) {
    if (!window_start_ || now - *window_start_ >= options_.window) {
      window_start_ = now;
      in_window_ = 0;
    }
    if (in_window_ == options_.burst) {
      ++kept_back_;
      return std::nullopt;
    }
    ++in_window_;
    return std::exchange(kept_back_, 0);
  }

 private:
  Options options_;
  std::optional<Clock::time_point> window_start_;
  std::size_t in_window_ = 0;
  std::size_t kept_back_ = 0;
};

}  // namespace ddprun::rendezvous
