#include "ddprun/rendezvous/backends/node_address.h"

namespace ddprun {

std::string without_v4_mapping(std::string_view address) {
  constexpr std::string_view prefix = "::ffff:";
  const bool mapped = address.starts_with(prefix) && address.find('.') != std::string_view::npos;
  return std::string(mapped ? address.substr(prefix.size()) : address);
}

bool is_loopback_address(std::string_view address) {
  const std::string plain = without_v4_mapping(address);
  return plain == "::1" || plain.starts_with("127.");
}

std::vector<std::string> dialable_addresses(const std::vector<AddressCandidate>& nodes) {
  std::string server;  // as seen from outside, empty when nobody is outside
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
