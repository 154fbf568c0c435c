#pragma once

#include <string>
#include <vector>

// The address at which other nodes dial a node: taken from the nodes' sessions, never from a name lookup.
namespace ddprun {

// The two ends of a node's connection to the server, numeric and without port ("10.0.0.7", "fd00::7").
struct SessionAddresses {
  std::string peer;   // the node's end
  std::string local;  // the server's end
};

struct AddressCandidate {
  std::string declared;  // --local_addr; empty: none
  SessionAddresses session;
};

// One address per node, in the order given: the declared address, otherwise the peer address of the node's session. A
// node that connected over loopback runs on the server's host; if another node connected from elsewhere, the first node
// gets the server address that the other one dialled, since 127.0.0.1 is useless to other hosts.
std::vector<std::string> dialable_addresses(const std::vector<AddressCandidate>& nodes);

}  // namespace ddprun
