#include "ddprun/launcher/dashboard/http_rules.h"

#include <algorithm>
#include <cctype>

#include <boost/asio/ip/address.hpp>
#include <fmt/format.h>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"

namespace ddprun::dashboard {
namespace {

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

bool is_address(const std::string& host) {
  boost::system::error_code failure;
  boost::asio::ip::make_address(host, failure);
  return !failure;
}

}  // namespace

HostRule::HostRule(std::string_view address, std::uint16_t port, std::string_view host)
    : port_(port), any_address_(address == "0.0.0.0" || address == "::") {
  const auto add = [&](std::string_view name) { names_.push_back(lower(format_host_port(name, port))); };
  if (!any_address_) add(address);
  if (any_address_ || is_loopback_address(address)) {
    for (const auto* name : {"localhost", "127.0.0.1", "::1"}) add(name);
  }
  if (!is_loopback_address(address)) add(host);
}

bool HostRule::allows(std::string_view header) const {
  const auto name = lower(header);
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) return true;
  if (!any_address_) return false;
  try {
    const auto given = parse_host_port(name);
    return is_address(given.host) && given.port_or(80) == port_;
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
