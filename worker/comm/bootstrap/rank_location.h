#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ddprun/worker/comm/bootstrap/host_map.h"
#include "ddprun/worker/comm/comm_config.h"

namespace ddprun::comm {

// Where a rank runs, as it tells the others when a group comes together.
struct RankLocation {
  std::string host;          // host_evidence(): who shares memory with it
  std::string network;       // network_evidence(): who reaches it by a loopback address
  std::string address;       // by which it expects to be reached; numeric
  std::string deviceless{};  // why it has no back end for memory of devices; empty: it has, or was not asked
  friend bool operator==(const RankLocation&, const RankLocation&) = default;
};
using RankLocations = std::vector<RankLocation>;

// Of this process. Throws Errc::usage for a local_address that is neither address nor interface.
RankLocation own_location(const CommConfig& config);

std::string encode(const RankLocation& place);
RankLocation decode_location(std::string_view text);

HostMap host_map(const RankLocations& places);

// The address by which all ranks reach this one: its own, unless that is a loopback address and another rank lives in
// another network; then the one from which the route to that rank begins. Throws Errc::usage naming two ranks when
// nobody has told an address to route to.
std::string address_for_peers(const RankLocations& places, int rank);

}  // namespace ddprun::comm
