#pragma once

#include <chrono>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ddprun/launcher/workers/guardian.h"

namespace ddprun {

// Replaces a guardian that was killed, at once, and logs it. Replacements follow each other at intervals of a second.
//
// Ownership: borrows the loop and the guardian, which must outlive it. Threads: single-threaded on the loop. Errors: if
// the guardian cannot be started, the first error is logged, and the start is retried every 30 seconds without a
// message until it succeeds.
class GuardianWatch {
 public:
  GuardianWatch(boost::asio::io_context& loop, Guardian& guardian);

 private:
  void watch();
  void replace();

  Guardian& guardian_;
  boost::asio::posix::stream_descriptor exit_;
  boost::asio::steady_timer timer_;
  std::chrono::steady_clock::time_point next_;  // earliest time of the next replacement
  bool failing_ = false;                        // the last start failed
};

}  // namespace ddprun
