#pragma once

#include <chrono>
#include <optional>

namespace ddprun {

// The time at which an operation times out, or never. Pass it down through calls, so that their waits add up to one
// timeout.
//
// A value. Threads: const functions are thread-safe. Errors: none. Units: nanoseconds of the monotonic clock.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  static Deadline never() { return Deadline(std::nullopt); }
  static Deadline at(Clock::time_point when) { return Deadline(when); }
  // Saturates: a timeout beyond the clock's range means never().
  static Deadline in(Duration timeout, Clock::time_point now = Clock::now());

  std::optional<Clock::time_point> when() const { return when_; }
  bool expired(Clock::time_point now = Clock::now()) const { return when_ && now >= *when_; }
  // Returns zero once expired, Duration::max() for never().
  Duration remaining(Clock::time_point now = Clock::now()) const;
  // The timeout for poll(2): rounded up, at most INT_MAX; -1 for never().
  int poll_timeout_ms(Clock::time_point now = Clock::now()) const;

  // The earlier of two; never() is later than any time.
  friend Deadline earlier(const Deadline& a, const Deadline& b);

 private:
  explicit Deadline(std::optional<Clock::time_point> when) : when_(when) {}
  std::optional<Clock::time_point> when_;
};

Deadline earlier(const Deadline& a, const Deadline& b);

}  // namespace ddprun
