#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Who may ask the dashboard for what. No I/O.
namespace ddprun::dashboard {

// Names that a browser may have in its Host header for a server that listens at an address. A page from elsewhere whose
// name was made to resolve to this host (DNS rebinding) has another one.
class HostRule {
 public:
  // address: a literal, "0.0.0.0" and "::" for all interfaces. host: this machine's name.
  HostRule(std::string_view address, std::uint16_t port, std::string_view host);

  bool allows(std::string_view header) const;

 private:
  std::vector<std::string> names_;  // with the port, in lower case
  std::uint16_t port_;
  bool any_address_;  // literals of other addresses of this machine are allowed: no name stands for them
};

// "a=1; b=2": the value of a cookie.
std::optional<std::string_view> cookie_value(std::string_view header, std::string_view name);

// "Bearer T": T.
std::optional<std::string_view> bearer_token(std::string_view header);

}  // namespace ddprun::dashboard
