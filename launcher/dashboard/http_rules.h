#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/address.hpp>

// The rules for requests to the dashboard. No I/O.
namespace ddprun::dashboard {

// The Host headers that a browser may send to a server that listens at an address: a page from elsewhere whose name was
// made to resolve to this host (DNS rebinding) sends another one. A header without a port means port 80. Names are
// compared without regard to case, IPv6 addresses stand in brackets and are compared as addresses.
class HostRule {
 public:
  // address is a literal, "0.0.0.0" and "::" for all interfaces. host is this machine's name.
  HostRule(std::string_view address, std::uint16_t port, std::string_view host);

  bool allows(std::string_view header) const;

 private:
  std::vector<std::string> names_;  // in lower case
  std::vector<boost::asio::ip::address> addresses_;
  std::uint16_t port_;
  bool any_address_;  // literals of this machine's other addresses are allowed, which no name can imitate
};

// Returns the value of a cookie in a header such as "a=1; b=2".
std::optional<std::string_view> cookie_value(std::string_view header, std::string_view name);

// Returns the T of "Bearer T".
std::optional<std::string_view> bearer_token(std::string_view header);

}  // namespace ddprun::dashboard
