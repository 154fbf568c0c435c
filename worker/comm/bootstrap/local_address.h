#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::comm {

// The numeric address of this host on the route to host:port, at which processes there can reach it. Sends no packet. A
// loopback address if host is this one, also if only /etc/hosts says so. Throws Errc::unreachable naming the host.
std::string local_address_towards(const std::string& host, std::uint16_t port);

// One network interface of this host. A plain value.
struct NetworkInterface {
  std::string name;
  bool up = false;
  std::string address;  // IPv4, or else IPv6 that is not link-local; empty: none
  friend bool operator==(const NetworkInterface&, const NetworkInterface&) = default;
};
std::vector<NetworkInterface> network_interfaces();

// An address as given; or, from a comma-separated list of interface names as PyTorch takes it, the address of the first
// interface that is up and has one. Throws Errc::usage listing the interfaces of this host.
std::string numeric_address(const std::string& address_or_interfaces);
std::string choose_address(const std::string& names, const std::vector<NetworkInterface>& interfaces);

// Whether that host name or address is this host's. False if it cannot be resolved.
bool is_this_host(const std::string& host, std::uint16_t port);

bool is_loopback(const std::string& address);

}  // namespace ddprun::comm
