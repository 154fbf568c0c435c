#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker/comm/bootstrap/host_map.h"
#include "worker/comm/comm_config.h"

namespace ddprun::comm {

// The place of a rank's device memory.
struct DevicePlace {
  std::string device{};      // RankLocation::device
  std::string deviceless{};  // RankLocation::deviceless
};

// The host and network that a rank runs on, as it publishes them when a group forms. A plain value.
struct RankLocation {
  std::string host;          // host_evidence(): ranks with the same share memory
  std::string network;       // network_evidence(): ranks with the same reach each other by loopback addresses
  std::string address;       // the numeric one at which it expects to be reached
  std::string device{};      // the PCI bus id of its GPU, if it has been given one
  std::string deviceless{};  // why it has no GPU; empty if it has one, or nobody asked
  std::string host_name{};   // for messages: names need not be unique
  friend bool operator==(const RankLocation&, const RankLocation&) = default;
};
using RankLocations = std::vector<RankLocation>;  // by rank

// The location of this process. Throws Errc::usage for a local_address that is neither an address nor an interface.
RankLocation own_location(const CommConfig& config);

std::string encode(const RankLocation& location);
RankLocation decode_location(std::string_view text);

HostMap host_map(const RankLocations& locations);

// The address at which all ranks reach this one: its own, or, if that is a loopback address and another rank is in
// another network, the source address of the route to that rank. Throws Errc::usage naming two ranks if no rank has an
// address to route to.
std::string address_for_peers(const RankLocations& locations, int rank);

}  // namespace ddprun::comm
