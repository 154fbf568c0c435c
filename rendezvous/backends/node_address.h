#pragma once

#include <string>
#include <string_view>
#include <vector>

// At which address other nodes dial a node: found from what the sessions show, never from a name lookup.
namespace ddprun {

// The two ends of a node's session as the server's kernel knows them, numeric and without port ("10.0.0.7", "fd00::7").
struct SessionAddresses {
  std::string peer;   // where the node's session comes from
  std::string local;  // the server's own end of it
};

struct AddressCandidate {
  std::string declared;  // --local_addr; empty: none
  SessionAddresses session;
};

// One address a node, in their order. What the node declared wins; else the address its session came in on. A node
// whose session came in over loopback while another's did not sits on the server's host: there the address at which
// that other node reached the server is used, since nobody else can dial 127.0.0.1.
std::vector<std::string> dialable_addresses(const std::vector<AddressCandidate>& nodes);

// 127.0.0.0/8, ::1, and the same mapped into IPv6.
bool is_loopback_address(std::string_view address);

// "::ffff:10.0.0.7" -> "10.0.0.7"; anything else unchanged.
std::string without_v4_mapping(std::string_view address);

}  // namespace ddprun
