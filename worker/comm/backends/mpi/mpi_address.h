#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddprun::comm {

// The address at which this process reaches rank 0's host, found through MPI: rank 0 broadcasts its addresses in MPI's
// world. Every process that MPI has started calls it. interface: as in GLOO_SOCKET_IFNAME, or empty. bound: as in
// MpiLibrary::instance(), whose errors it throws.
std::string address_of_rank_zero(const std::string& interface, std::chrono::milliseconds bound);

// Returns the one of the others' addresses that has the longest prefix in common with one of the own addresses, so that
// it is in the same network if any is. Addresses are numeric. REQUIRES: there are others.
std::string nearest_address(const std::vector<std::string>& others, const std::vector<std::string>& own);

}  // namespace ddprun::comm
