#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "launcher/workers/guardian.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// Replaces a process of the guardian that was killed, at once, and logs it. Replacements of one process follow each
// other at intervals of a second.
//
// Ownership: borrows the loop and the guardian, which must outlive it. Threads: single-threaded on the loop. Errors: if
// the process cannot be started, the first error is logged, and the start is retried every 30 seconds without a
// message until it succeeds.
class GuardianWatch {
 public:
  GuardianWatch(boost::asio::io_context& loop, Guardian& guardian);
  ~GuardianWatch();

 private:
  class ProcessWatch;
  std::vector<std::unique_ptr<ProcessWatch>> watches_;
};

}  // namespace ddprun
