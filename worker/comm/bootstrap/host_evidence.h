#pragma once

#include <string>

namespace ddprun::comm {

// What tells one running host (and container, and user) from another: equal where processes can open each other's
// memory through /proc. Made of the kernel's boot id, the process-id namespace and the user; never of names or
// addresses.
std::string host_evidence();

// What tells one network from another: equal where processes reach each other by loopback addresses. Made of the boot
// id and the network namespace.
std::string network_evidence();

}  // namespace ddprun::comm
