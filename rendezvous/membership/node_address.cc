#include "rendezvous/membership/node_address.h"

#include "common/host_port.h"

namespace ddprun {

std::vector<std::string> dialable_addresses(const std::vector<AddressCandidate>& nodes) {
  std::string server;  // the address that nodes on other hosts dialled; empty if there are none
  for (const auto& node : nodes)
    if (server.empty() && !is_loopback_address(node.session.peer)) server = without_v4_mapping(node.session.local);

  std::vector<std::string> addresses;
  addresses.reserve(nodes.size());
  for (const auto& node : nodes) {
    if (!node.declared.empty())
      addresses.push_back(node.declared);
    else if (is_loopback_address(node.session.peer) && !server.empty())
      addresses.push_back(server);
    else
      addresses.push_back(without_v4_mapping(node.session.peer));
  }
  return addresses;
}

}  // namespace ddprun
