#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "launcher/workers/watchdog_timers.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// torchrun's watchdog: a named pipe (FIFO) over which workers set and release timers. Calls the handler for expired
// timers, which sends the signals. torchrun's watchdog also signals the agent; this one does not, since the agent must
// report the failed worker and restart the job.
//
// Ownership: owns the pipe; borrows the loop. Threads: single-threaded on the loop. Errors: the constructor throws
// Errc::io; invalid requests are logged. Units: timers hold seconds since the epoch.
class Watchdog {
 public:
  using Handler = std::function<void(const ExpiredTimer&)>;

  // Creates the pipe, replacing an earlier one; the destructor removes it. Throws Errc::io naming it.
  Watchdog(boost::asio::io_context& loop, std::filesystem::path pipe, Handler on_expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const std::filesystem::path& pipe() const;
  // Removes all timers; call when no worker of the round is left.
  void clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
