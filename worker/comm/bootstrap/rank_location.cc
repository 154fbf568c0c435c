#include "ddprun/worker/comm/bootstrap/rank_location.h"

#include <algorithm>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/bootstrap/host_evidence.h"
#include "ddprun/worker/comm/bootstrap/local_address.h"

namespace ddprun::comm {

RankLocation own_location(const CommConfig& config) {
  return {.host = config.host.empty() ? host_evidence() : config.host,
          .network = network_evidence(),
          .address = config.local_address.empty() ? "127.0.0.1" : numeric_address(config.local_address)};
}

std::string encode(const RankLocation& place) {
  return place.host + '\n' + place.network + '\n' + place.address + '\n' + place.deviceless;
}

RankLocation decode_location(std::string_view text) {
  const auto next_line = [&text] {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return std::string(line);
  };
  RankLocation place;
  place.host = next_line();
  place.network = next_line();
  place.address = next_line();
  place.deviceless = next_line();
  return place;
}

HostMap host_map(const RankLocations& places) {
  std::vector<std::string> hosts;
  for (const auto& place : places) hosts.push_back(place.host);
  return HostMap(hosts);
}

std::string address_for_peers(const RankLocations& places, int rank) {
  const auto& own = places[static_cast<std::size_t>(rank)];
  if (!is_loopback(own.address)) return own.address;
  const auto elsewhere = [&](const RankLocation& place) { return place.network != own.network; };
  const auto far = std::find_if(places.begin(), places.end(), elsewhere);
  if (far == places.end()) return own.address;
  const auto known = std::find_if(places.begin(), places.end(),
                                  [&](const auto& place) { return elsewhere(place) && !is_loopback(place.address); });
  constexpr std::uint16_t any_port = 9;  // nothing is sent
  auto address = known == places.end() ? own.address : local_address_towards(known->address, any_port);
  if (!is_loopback(address)) return address;
  throw make_error(Errc::usage,
                   "rank {} and rank {} are on different hosts, but all that is known of the way between them is the "
                   "loopback address {}: name this host's network interface (GLOO_SOCKET_IFNAME)",
                   rank, far - places.begin(), own.address);
}

}  // namespace ddprun::comm
