#include "worker/comm/bootstrap/local_address.h"

#include <algorithm>
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <set>
#include <sstream>
#include <sys/socket.h>

#include <fmt/ranges.h>

#include "common/error.h"
#include "common/host_port.h"
#include "common/unique_fd.h"

namespace ddprun::comm {
namespace {

std::string to_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* raw = address->sa_family == AF_INET6
                        ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
                        : static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
  ::inet_ntop(address->sa_family, raw, text, sizeof(text));
  return text;
}

bool is_address(const std::string& text) {
  in6_addr raw;
  return ::inet_pton(AF_INET, text.c_str(), &raw) == 1 || ::inet_pton(AF_INET6, text.c_str(), &raw) == 1;
}

// Connecting a UDP socket selects the source address of the route.
std::optional<std::string> route_source(const addrinfo& target) {
  const UniqueFd fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage source{};
  socklen_t length = sizeof(source);
  if (!fd || ::connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0) return std::nullopt;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&source), &length) != 0) return std::nullopt;
  return to_text(reinterpret_cast<const sockaddr*>(&source));
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream rest(text);
  for (std::string part; std::getline(rest, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

std::string describe(const NetworkInterface& interface) {
  if (!interface.up) return interface.name + " (down)";
  return fmt::format("{} ({})", interface.name, interface.address.empty() ? "no address" : interface.address);
}

using Targets = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Targets resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(name_to_resolve(host).c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0) {
    throw make_error(Errc::unreachable, "the host name {} cannot be resolved: {}", host, ::gai_strerror(error));
  }
  return {found, ::freeaddrinfo};
}

}  // namespace

std::string local_address_towards(const std::string& host, std::uint16_t port) {
  const auto targets = resolve(host, port);
  for (const auto* target = targets.get(); target; target = target->ai_next) {
    if (const auto source = route_source(*target)) return *source;
  }
  throw make_error(Errc::unreachable, "this host has no route to {}", host);
}

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  const auto entry = [&](const char* name) -> NetworkInterface& {
    const auto named = [&](const auto& each) { return each.name == name; };
    const auto found = std::find_if(interfaces.begin(), interfaces.end(), named);
    return found == interfaces.end() ? interfaces.emplace_back(NetworkInterface{name, false, ""}) : *found;
  };
  std::set<std::string> with_ipv4;
  for (const auto* each = list; each; each = each->ifa_next) {
    auto& interface = entry(each->ifa_name);
    interface.up = (each->ifa_flags & IFF_UP) != 0;
    if (!each->ifa_addr || with_ipv4.contains(interface.name)) continue;
    if (each->ifa_addr->sa_family == AF_INET) {
      interface.address = to_text(each->ifa_addr);
      with_ipv4.insert(interface.name);
    } else if (each->ifa_addr->sa_family == AF_INET6 && interface.address.empty()) {
      const auto& address = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&address)) interface.address = to_text(each->ifa_addr);
    }
  }
  return interfaces;
}

std::string numeric_address(const std::string& address_or_interfaces) {
  if (is_address(address_or_interfaces)) return address_or_interfaces;
  return choose_address(address_or_interfaces, network_interfaces());
}

std::string choose_address(const std::string& names, const std::vector<NetworkInterface>& interfaces) {
  for (const auto& name : split_at_commas(names)) {
    for (const auto& each : interfaces)
      if (each.name == name && each.up && !each.address.empty()) return each.address;
  }
  std::vector<std::string> present;
  for (const auto& each : interfaces) present.push_back(describe(each));
  throw make_error(
      Errc::usage,
      "{} is neither an address nor the name of an interface of this host that is up and has one: there are {}", names,
      fmt::join(present, ", "));
}

bool is_this_host(const std::string& host, std::uint16_t port) try {
  const auto targets = resolve(host, port);
  for (const auto* target = targets.get(); target; target = target->ai_next) {
    const auto address = to_text(target->ai_addr);
    if (is_loopback(address) || route_source(*target) == address) return true;
  }
  return false;
} catch (const Error&) {
  return false;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace ddprun::comm
