#pragma once

#include <gloo/transport/tcp/device.h>

#include "ddprun/common/unique_fd.h"

namespace ddprun::comm {

// Makes a Gloo device's loop turn when nothing happens. Connecting and closing a pair wait for the end of its turn,
// which without events comes every 10 ms: pair by pair, that is what forming and aborting a group would take.
class LoopWakeups {
 public:
  explicit LoopWakeups(::gloo::transport::tcp::Device& device);

  // While it lives, the loop turns every fraction of a millisecond.
  class Quick {
   public:
    explicit Quick(LoopWakeups& turns);
    Quick(const Quick&) = delete;
    Quick& operator=(const Quick&) = delete;
    ~Quick();

   private:
    const int event_;
  };

 private:
  const UniqueFd event_;  // readable while somebody is in a hurry
};

}  // namespace ddprun::comm
