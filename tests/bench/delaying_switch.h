#pragma once

#include <chrono>
#include <thread>

#include "common/unique_fd.h"
#include "tests/support/netns.h"

namespace ddprun::bench {

// In place of the switch between hosts: passes each Ethernet frame on when it has held it for the delay, the same for
// all frames, so that their order stays. A round trip takes twice the delay. Where the kernel has no netem.
//
// Frames are as large as the hosts' TCP makes them (up to 64 KiB), since the switch takes part in segmentation offload.
//
// Ownership: hosts outlives it; the hosts have no network any more after its end. Threads: it has one of its own, with
//   real-time priority where that is permitted, so that load does not add to the delay.
// Errors: the constructor throws Errc::io.
class DelayingSwitch {
 public:
  DelayingSwitch(testing::NetnsHosts& hosts, std::chrono::nanoseconds delay);
  DelayingSwitch(const DelayingSwitch&) = delete;
  DelayingSwitch& operator=(const DelayingSwitch&) = delete;
  ~DelayingSwitch();

 private:
  const UniqueFd end_;  // an event that ends the thread
  std::thread thread_;
};

}  // namespace ddprun::bench
