#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

// An endpoint as torchrun accepts it: "host:port", "host", "[v6]:port", "[v6]" or a bare IPv6 literal. A value.
struct HostPort {
  std::string host;  // as typed, without brackets; not resolved
  std::optional<std::uint16_t> port;

  std::uint16_t port_or(std::uint16_t fallback) const { return port.value_or(fallback); }
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Throws Errc::usage naming the text. The host may be empty ("" or ":29400"): the caller has a default.
HostPort parse_host_port(std::string_view text);

// "10.0.0.1:29400", "[fe80::1]:29400"
std::string format_host_port(std::string_view host, std::uint16_t port);

// The name to pass to getaddrinfo: "localhost" becomes 127.0.0.1 (::1 on a host without it), since a container without
// /etc/hosts cannot resolve it (RFC 6761, section 6.3).
std::string name_to_resolve(std::string_view host);

// True for 127.0.0.0/8, ::1, and either mapped into IPv6.
bool is_loopback_address(std::string_view address);

// "::ffff:10.0.0.7" becomes "10.0.0.7"; anything else is unchanged.
std::string without_v4_mapping(std::string_view address);

// gethostname(2).
std::string local_host_name();

}  // namespace ddprun
