#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::comm {

// Returns this host's numeric address on the route to host:port, at which processes there can reach it: a loopback
// address if host is this one, even if only /etc/hosts says so. Sends no packet. Throws Errc::unreachable naming host.
std::string local_address_towards(const std::string& host, std::uint16_t port);

// One network interface of this host. A plain value.
struct NetworkInterface {
  std::string name;
  bool up = false;
  std::string address;  // IPv4, or else IPv6 that is not link-local; empty if there is none
  friend bool operator==(const NetworkInterface&, const NetworkInterface&) = default;
};
std::vector<NetworkInterface> network_interfaces();

// Returns an address as given; or, from a comma-separated list of interface names as PyTorch takes it, the address of
// the first interface that is up and has one. Throws Errc::usage listing the interfaces of this host.
std::string numeric_address(const std::string& address_or_interfaces);
std::string choose_address(const std::string& names, const std::vector<NetworkInterface>& interfaces);

// Returns whether that host name or address is this host's; false if it cannot be resolved.
bool is_this_host(const std::string& host, std::uint16_t port);

bool is_loopback(const std::string& address);

}  // namespace ddprun::comm
