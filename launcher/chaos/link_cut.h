#pragma once

#include "common/unique_fd.h"

namespace ddprun {

// While it exists, no packet of IPv4 or IPv6 passes the links of this thread's network namespace, in either direction.
// The loopback interface works, and links, addresses, routes and open connections stay as they are. A send over UDP
// fails with EPERM meanwhile.
//
// The packets are dropped by an nftables table that the kernel removes with the socket that owns it, so the links work
// again when this object is destroyed and when its process ends, however it ends.
//
// Threads: not thread-safe. No call waits. Errors: the constructor throws what check_links_can_be_cut() throws, and
// Errc::io where the system has no descriptor or memory for it.
class LinkCut {
 public:
  LinkCut();

 private:
  UniqueFd table_;
};

// Throws Errc::usage with the reason and what to do about it, unless the links of this thread's network namespace can
// be cut. Those of the machine's initial namespace, on which the whole machine depends, cannot.
void check_links_can_be_cut();

}  // namespace ddprun
