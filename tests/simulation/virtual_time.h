#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace ddprun::testing {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

// A clock that advances only from one event to the next. Events of the same time run in the order in
// which they were scheduled.
class VirtualTime {
 public:
  Time now() const { return now_; }
  // A time in the past means now.
  void at(Time when, std::function<void()> action);
  void after(Duration delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }
  // Runs the next event; returns false if there is none.
  bool step();

 private:
  struct Event {
    Time when;
    std::uint64_t number;
    std::function<void()> action;
  };
  static bool later(const Event& a, const Event& b);

  Time now_{std::chrono::hours(1)};
  std::uint64_t scheduled_ = 0;
  std::vector<Event> events_;  // a heap, the next one first
};

}  // namespace ddprun::testing
