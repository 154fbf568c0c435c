#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

// "host:port", "host", "[v6]:port", "[v6]" or a bare IPv6 literal, as torchrun's endpoints are written.
struct HostPort {
  std::string host;  // without brackets; as typed, never resolved
  std::optional<std::uint16_t> port;

  std::uint16_t port_or(std::uint16_t fallback) const { return port.value_or(fallback); }
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Throws Errc::usage naming the text. An empty host ("" or ":29400") is allowed where the caller has a default.
HostPort parse_host_port(std::string_view text);

// "10.0.0.1:29400", "[fe80::1]:29400"
std::string format_host_port(std::string_view host, std::uint16_t port);

// What to hand to a resolver for a host as typed: "localhost" is the loopback address also on a machine whose resolver
// does not know it, as in a bare container without /etc/hosts (RFC 6761, section 6.3).
std::string name_to_resolve(std::string_view host);

// The machine's host name as the kernel knows it.
std::string local_host_name();

}  // namespace ddprun
