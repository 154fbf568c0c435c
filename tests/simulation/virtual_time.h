#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace ddprun::testing {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

// A clock that stands still while anything happens, and jumps to the next event. Events of one time happen in the order
// in which they were asked for.
class VirtualTime {
 public:
  Time now() const { return now_; }
  // Not in the past: what is late happens now.
  void at(Time when, std::function<void()> action);
  void after(Duration delay, std::function<void()> action) { at(now_ + delay, std::move(action)); }
  // Lets the next event happen; false when there is none.
  bool step();

 private:
  struct Event {
    Time when;
    std::uint64_t number;
    std::function<void()> action;
  };
  static bool later(const Event& a, const Event& b);

  Time now_{std::chrono::hours(1)};
  std::uint64_t events_asked_for_ = 0;
  std::vector<Event> events_;  // a heap, the next one first
};

}  // namespace ddprun::testing
