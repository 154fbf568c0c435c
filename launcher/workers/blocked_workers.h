#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "common/timer.h"
#include "launcher/workers/sleep_watch.h"

namespace ddprun {

// Examines the threads of running workers at intervals, and reports those that have been in uninterruptible sleep for
// too long.
//
// Ownership: owns its timer; the loop must outlive it. Threads: single-threaded on the loop, which calls the handlers.
// Errors: none thrown; a process that has ended meanwhile has no threads.
class BlockedWorkers {
 public:
  struct Handlers {
    std::function<std::vector<pid_t>()> running;
    // Called when one process has a thread that sleeps, as the text describes.
    std::function<void(pid_t process, const std::string& text)> blocked;
    std::function<void()> looked;  // called after all running ones were examined
  };

  // With limit 0 workers are not watched.
  BlockedWorkers(boost::asio::io_context& loop, std::chrono::milliseconds limit, Handlers handlers);
  ~BlockedWorkers() { stop(); }
  BlockedWorkers(const BlockedWorkers&) = delete;
  BlockedWorkers& operator=(const BlockedWorkers&) = delete;

  void start();
  void stop();

 private:
  void look();

  std::chrono::milliseconds limit_;
  Handlers handlers_;
  SleepWatch watch_;
  Timer timer_;
  bool watching_ = false;
};

}  // namespace ddprun
