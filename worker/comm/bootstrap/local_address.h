#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::comm {

// The numeric address by which this host reaches host:port: what others there may dial. No packet is sent. A loopback
// address where host is this one, be it only by its name in /etc/hosts. Throws Errc::unreachable naming the host.
std::string local_address_towards(const std::string& host, std::uint16_t port);

// One network interface of this host.
struct NetworkInterface {
  std::string name;
  bool up = false;
  std::string address;  // of IPv4 before one of IPv6 that is valid beyond the link; empty: none
  friend bool operator==(const NetworkInterface&, const NetworkInterface&) = default;
};
std::vector<NetworkInterface> network_interfaces();

// An address as it is. Of the names of interfaces, with commas between them as PyTorch has them, the address of the
// first that there is, up and with an address. Throws Errc::usage telling which there are.
std::string numeric_address(const std::string& address_or_interfaces);
std::string choose_address(const std::string& names, const std::vector<NetworkInterface>& interfaces);

// Whether the host of that name, or address, is this one; one that cannot be resolved is not.
bool is_this_host(const std::string& host, std::uint16_t port);

bool is_loopback(const std::string& address);

}  // namespace ddprun::comm
