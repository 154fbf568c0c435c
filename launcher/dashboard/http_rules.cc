#include "launcher/dashboard/http_rules.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "common/error.h"
#include "common/host_port.h"

namespace ddprun::dashboard {
namespace {

constexpr std::uint16_t default_port = 80;  // HTTP's port, which a browser leaves out

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

using boost::asio::ip::address;

// Returns nullopt for a name. An IPv4-mapped IPv6 address equals the IPv4 address.
std::optional<address> address_in(const std::string& text) {
  boost::system::error_code failure;
  const auto found = boost::asio::ip::make_address(without_v4_mapping(text), failure);
  return failure ? std::nullopt : std::optional(found);
}

// In a header only an IPv6 address stands in brackets.
bool well_formed(std::string_view header) {
  return header.starts_with('[') || std::count(header.begin(), header.end(), ':') < 2;
}

}  // namespace

HostRule::HostRule(std::string_view address, std::uint16_t port, std::string_view host)
    : port_(port), any_address_(address == "0.0.0.0" || address == "::") {
  const auto add = [&](std::string_view name) {
    if (const auto literal = address_in(std::string(name)))
      addresses_.push_back(*literal);
    else
      names_.push_back(lower(name));
  };
  const bool loopback = is_loopback_address(address);
  if (!any_address_) add(address);
  if (any_address_ || loopback)
    for (const auto* name : {"localhost", "127.0.0.1", "::1"}) add(name);
  if (!loopback) add(host);
}

bool HostRule::allows(std::string_view header) const {
  if (!well_formed(header)) return false;
  try {
    const auto given = parse_host_port(lower(header));
    if (given.host.empty() || given.port_or(default_port) != port_) return false;
    const auto literal = address_in(given.host);
    if (!literal) return std::find(names_.begin(), names_.end(), given.host) != names_.end();
    return any_address_ || std::find(addresses_.begin(), addresses_.end(), *literal) != addresses_.end();
  } catch (const Error&) {
    return false;
  }
}

std::optional<std::string_view> cookie_value(std::string_view header, std::string_view name) {
  while (!header.empty()) {
    const auto end = std::min(header.find(';'), header.size());
    const auto pair = trimmed(header.substr(0, end));
    if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=')
      return pair.substr(name.size() + 1);
    header.remove_prefix(std::min(end + 1, header.size()));
  }
  return std::nullopt;
}

std::optional<std::string_view> bearer_token(std::string_view header) {
  constexpr std::string_view scheme = "bearer ";
  if (lower(header.substr(0, scheme.size())) != scheme) return std::nullopt;
  return trimmed(header.substr(scheme.size()));
}

}  // namespace ddprun::dashboard
