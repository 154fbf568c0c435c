#pragma once

#include <cstdint>
#include <string>

namespace ddprun::comm {

// The numeric address by which this host reaches host:port: what others there may dial. No packet is sent. A loopback
// address where host is this one, be it only by its name in /etc/hosts. Throws Errc::unreachable naming the host.
std::string local_address_towards(const std::string& host, std::uint16_t port);

// The address of an interface of this host; an address as it is. Throws Errc::usage for an interface without one, and
// for what is neither.
std::string numeric_address(const std::string& address_or_interface);

bool is_loopback(const std::string& address);

}  // namespace ddprun::comm
