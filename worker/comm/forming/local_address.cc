#include "ddprun/worker/comm/forming/local_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>

#include "ddprun/common/error.h"
#include "ddprun/common/host_port.h"
#include "ddprun/common/unique_fd.h"

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

// Of an interface; an IPv4 address before one of IPv6, which must be valid beyond the link.
std::optional<std::string> address_of(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::optional<std::string> found;
  for (const auto* each = list; each; each = each->ifa_next) {
    if (!each->ifa_addr || interface != each->ifa_name) continue;
    if (each->ifa_addr->sa_family == AF_INET) return to_text(each->ifa_addr);
    if (each->ifa_addr->sa_family != AF_INET6 || found) continue;
    const auto& address = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&address)) found = to_text(each->ifa_addr);
  }
  return found;
}

bool is_address(const std::string& text) {
  in6_addr raw;
  return ::inet_pton(AF_INET, text.c_str(), &raw) == 1 || ::inet_pton(AF_INET6, text.c_str(), &raw) == 1;
}

// A connected UDP socket knows the address that the route begins with.
std::optional<std::string> route_source(const addrinfo& target) {
  const UniqueFd fd(::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage source{};
  socklen_t length = sizeof(source);
  if (!fd || ::connect(fd.get(), target.ai_addr, target.ai_addrlen) != 0) return std::nullopt;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&source), &length) != 0) return std::nullopt;
  return to_text(reinterpret_cast<const sockaddr*>(&source));
}

}  // namespace

std::string local_address_towards(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(name_to_resolve(host).c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0) {
    throw make_error(Errc::unreachable, "the host name {} cannot be resolved: {}", host, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const auto* target = found; target; target = target->ai_next) {
    if (const auto source = route_source(*target)) return *source;
  }
  throw make_error(Errc::unreachable, "this host has no route to {}", host);
}

std::string numeric_address(const std::string& address_or_interface) {
  if (::if_nametoindex(address_or_interface.c_str()) == 0) {
    if (is_address(address_or_interface)) return address_or_interface;
    throw make_error(Errc::usage, "{} is neither an address nor an interface of this host", address_or_interface);
  }
  if (const auto address = address_of(address_or_interface)) return *address;
  throw make_error(Errc::usage, "the interface {} has no address", address_or_interface);
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

}  // namespace ddprun::comm
