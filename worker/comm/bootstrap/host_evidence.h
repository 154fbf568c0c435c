#pragma once

#include <string>

namespace ddprun::comm {

// Returns a text that is equal in two processes if they can open each other's memory through /proc: the same boot of a
// host, the same process-id namespace (container) and the same user. Names and addresses do not count.
std::string host_evidence();

// Returns a text that is equal in two processes if they reach each other by loopback addresses: the same boot of a host
// and the same network namespace.
std::string network_evidence();

}  // namespace ddprun::comm
