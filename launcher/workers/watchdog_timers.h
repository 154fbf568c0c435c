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

// A timer whose time has passed.
struct ExpiredTimer {
  pid_t pid = 0;
  std::string scope;      // the name that the process gave it
  int signal_number = 0;  // the signal that it requested; 0: none
};

// The timers that workers set over torchrun's watchdog pipe. A process has one for each scope; a new one replaces the
// old one.
//
// A value without I/O or clock. Threads: not thread-safe. Errors: see request(). Units: seconds since the epoch.
class WatchdogTimers {
 public:
  // Applies one line: {"version": 1, "pid": N, "scope_id": TEXT, "expiration_time": SECONDS, "signal": N}; a negative
  // time releases the timer. Throws Errc::protocol naming the invalid field.
  void request(std::string_view line);
  // Returns one timer of each process that has expired ones: the earliest with a signal, else the earliest. Removes all
  // timers of these processes.
  std::vector<ExpiredTimer> expire(double now);
  // The earliest time of a timer.
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
