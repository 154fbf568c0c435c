#pragma once

#include <gloo/transport/tcp/device.h>

#include "common/unique_fd.h"

namespace ddprun::comm {

// Wakes the event loop of a Gloo device when no socket does. Connecting and closing a pair wait for the end of a loop
// iteration, which without events takes 10 ms: for each pair, when a group forms or is aborted. Throws Errc::io when it
// cannot be made.
class LoopWakeups {
 public:
  explicit LoopWakeups(::gloo::transport::tcp::Device& device);

  // While one exists, the loop iterates several times a millisecond. Any thread may make one.
  class Frequent {
   public:
    explicit Frequent(LoopWakeups& wakeups);
    Frequent(const Frequent&) = delete;
    Frequent& operator=(const Frequent&) = delete;
    ~Frequent();

   private:
    const int event_;
  };

 private:
  const UniqueFd event_;  // a semaphore that counts the Frequent objects
};

}  // namespace ddprun::comm
