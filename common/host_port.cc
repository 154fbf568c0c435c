#include "common/host_port.h"

#include <charconv>
#include <unistd.h>

#include <climits>
#include <fmt/format.h>

#include "common/error.h"
#include "common/loopback.h"

namespace ddprun {
namespace {

std::uint16_t parse_port(std::string_view digits, std::string_view whole) {
  unsigned value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc{} || end != digits.data() + digits.size() || value > 65535)
    throw make_error(Errc::usage, "'{}': the port must be a number from 0 to 65535, not '{}'", whole, digits);
  return static_cast<std::uint16_t>(value);
}

HostPort parse_bracketed(std::string_view text) {
  const auto close = text.find(']');
  if (close == std::string_view::npos) throw make_error(Errc::usage, "'{}': the bracket is not closed", text);
  HostPort result{.host = std::string(text.substr(1, close - 1)), .port = std::nullopt};
  const auto rest = text.substr(close + 1);
  if (rest.empty()) return result;
  if (rest.front() != ':') throw make_error(Errc::usage, "'{}': expected ':PORT' after ']'", text);
  result.port = parse_port(rest.substr(1), text);
  return result;
}

}  // namespace

HostPort parse_host_port(std::string_view text) {
  if (!text.empty() && text.front() == '[') return parse_bracketed(text);
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos)
    return {.host = std::string(text), .port = std::nullopt};  // a name, an IPv4 address, or a bare IPv6 literal
  return {.host = std::string(text.substr(0, colon)), .port = parse_port(text.substr(colon + 1), text)};
}

std::string format_host_port(std::string_view host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string_view::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string name_to_resolve(std::string_view host) {
  return std::string(host == "localhost" || host.ends_with(".localhost") ? find_loopback().value_or("127.0.0.1")
                                                                         : host);
}

std::string without_v4_mapping(std::string_view address) {
  constexpr std::string_view prefix = "::ffff:";
  const bool mapped = address.starts_with(prefix) && address.find('.') != std::string_view::npos;
  return std::string(mapped ? address.substr(prefix.size()) : address);
}

bool is_loopback_address(std::string_view address) {
  const std::string plain = without_v4_mapping(address);
  return plain == "::1" || plain.starts_with("127.");
}

std::string local_host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

}  // namespace ddprun
