#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace ddprun {

// A time that a process had set itself, and that has passed.
struct ExpiredTimer {
  pid_t pid = 0;
  std::string scope;      // what the process called it
  int signal_number = 0;  // what it asked to be sent; 0: nothing
};

// The timers that workers set over torchrun's watchdog pipe. A process has one for each scope; a new one replaces the
// old. Times are seconds since the epoch. No I/O and no clock.
class WatchdogTimers {
 public:
  // One line: {"version": 1, "pid": N, "scope_id": TEXT, "expiration_time": SECONDS, "signal": N}; a negative time
  // releases the timer. Throws Errc::protocol saying what is wrong with it.
  void request(std::string_view line);
  // Of each process that has let a timer pass the earliest one that names a signal, or the earliest; all its timers are
  // forgotten.
  std::vector<ExpiredTimer> expire(double now);
  std::optional<double> next() const;
  void clear() { timers_.clear(); }

 private:
  struct Timer {
    double expires = 0;
    int signal_number = 0;
  };
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
};

}  // namespace ddprun
