#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/address.hpp>

// Who may ask the dashboard for what. No I/O.
namespace ddprun::dashboard {

// Which Host headers a browser may send to a server that listens at an address: a page from elsewhere whose name was
// made to resolve to this host (DNS rebinding) sends another one. A header without a port means port 80. Names are
// compared without regard to case, IPv6 addresses stand in brackets and are compared as addresses.
class HostRule {
 public:
  // address: a literal, "0.0.0.0" and "::" for all interfaces. host: this machine's name.
  HostRule(std::string_view address, std::uint16_t port, std::string_view host);

  bool allows(std::string_view header) const;

 private:
  std::vector<std::string> names_;  // in lower case
  std::vector<boost::asio::ip::address> addresses_;
  std::uint16_t port_;
  bool any_address_;  // literals of other addresses of this machine are allowed: no name stands for them
};

// "a=1; b=2": the value of a cookie.
std::optional<std::string_view> cookie_value(std::string_view header, std::string_view name);

// "Bearer T": T.
std::optional<std::string_view> bearer_token(std::string_view header);

}  // namespace ddprun::dashboard
