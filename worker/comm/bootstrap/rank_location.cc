#include "worker/comm/bootstrap/rank_location.h"

#include <algorithm>

#include "common/error.h"
#include "common/host_port.h"
#include "common/loopback.h"
#include "worker/comm/bootstrap/host_evidence.h"
#include "worker/comm/bootstrap/local_address.h"

namespace ddprun::comm {

RankLocation own_location(const CommConfig& config) {
  return {.host = config.host.empty() ? host_evidence() : config.host,
          .network = network_evidence(),
          .address = config.local_address.empty() ? find_loopback().value_or("127.0.0.1")
                                                  : numeric_address(config.local_address),
          .host_name = local_host_name()};
}

std::string encode(const RankLocation& location) {
  return location.host + '\n' + location.network + '\n' + location.address + '\n' + location.device + '\n' +
         location.deviceless + '\n' + location.host_name;
}

RankLocation decode_location(std::string_view text) {
  const auto next_line = [&text] {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    return std::string(line);
  };
  RankLocation location;
  location.host = next_line();
  location.network = next_line();
  location.address = next_line();
  location.device = next_line();
  location.deviceless = next_line();
  location.host_name = next_line();
  return location;
}

HostMap host_map(const RankLocations& locations) {
  std::vector<std::string> hosts;
  for (const auto& location : locations) hosts.push_back(location.host);
  return HostMap(hosts);
}

std::string address_for_peers(const RankLocations& locations, int rank) {
  const auto& own = locations[static_cast<std::size_t>(rank)];
  if (!is_loopback(own.address)) return own.address;
  const auto other_network = [&](const RankLocation& location) { return location.network != own.network; };
  const auto far = std::find_if(locations.begin(), locations.end(), other_network);
  if (far == locations.end()) return own.address;
  const auto known = std::find_if(locations.begin(), locations.end(), [&](const auto& location) {
    return other_network(location) && !is_loopback(location.address);
  });
  constexpr std::uint16_t any_port = 9;  // nothing is sent
  auto address = known == locations.end() ? own.address : local_address_towards(known->address, any_port);
  if (!is_loopback(address)) return address;
  throw make_error(
      Errc::usage,
      "rank {} and rank {} are on different hosts, but the only known address between them is the loopback "
      "address {}: name this host's network interface (GLOO_SOCKET_IFNAME)",
      rank, far - locations.begin(), own.address);
}

}  // namespace ddprun::comm
