#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "ddprun/launcher/workers/watchdog_timers.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// torchrun's watchdog: a named pipe over which workers set and release timers. Whoever is given the expired ones sends
// the signals; torchrun's watchdog sends them to the agent too, this one does not: a worker that dies is a failure like
// any other, and the agent has to live to report it and to start the workers again.
//
// Single-threaded, on the loop.
class Watchdog {
 public:
  using Handler = std::function<void(const ExpiredTimer&)>;

  // Makes the pipe, in place of an earlier one; the destructor removes it. Throws Errc::io naming it.
  Watchdog(boost::asio::io_context& loop, std::filesystem::path pipe, Handler on_expired);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const std::filesystem::path& pipe() const;
  // No worker of the round is left: nor are its timers.
  void clear();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun
