#include "rendezvous/hosting/endpoint.h"

#include <algorithm>
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <set>
#include <sys/socket.h>
#include <utility>

#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"

namespace ddprun {
namespace {

struct FreeAddresses {
  void operator()(ifaddrs* list) const { ::freeifaddrs(list); }
};

// "10.0.0.1" or "fe80::1"; empty for what is neither IPv4 nor IPv6.
std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET)
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  else if (address->sa_family == AF_INET6)
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (!bytes || !::inet_ntop(address->sa_family, bytes, text, sizeof text)) return {};
  return without_v4_mapping(text);
}

std::set<std::string> interface_addresses() {
  std::set<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, FreeAddresses> owner(list);
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next)
    if (entry->ifa_addr) addresses.insert(numeric(entry->ifa_addr));
  addresses.erase("");
  return addresses;
}

}  // namespace

std::optional<Hosting> decide_hosting(const std::string& host, const std::optional<bool>& is_host) {
  if (is_host) return *is_host ? Hosting::required : Hosting::never;
  if (host == "localhost" || host == local_host_name() || is_loopback_address(host)) return Hosting::if_free;
  sockaddr_storage ignored{};
  const bool numeric =
      ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 || ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
  return numeric ? std::optional(decide_hosting(std::vector{host})) : std::nullopt;
}

Hosting decide_hosting(const std::vector<std::string>& addresses) {
  const auto ours = interface_addresses();
  const bool own = std::any_of(addresses.begin(), addresses.end(), [&](const auto& address) {
    return ours.contains(without_v4_mapping(address)) || is_loopback_address(address);
  });
  return own ? Hosting::if_free : Hosting::never;
}

std::string listen_address(const std::string& host) {
  if (is_loopback_address(host)) return host;
  return interface_addresses().contains(without_v4_mapping(host)) ? host : "";
}

std::unique_ptr<StoreServer> serve_endpoint(boost::asio::io_context& loop, const std::string& host, std::uint16_t port,
                                            Hosting hosting, std::shared_ptr<const Admission> admission) {
  if (hosting == Hosting::never) return nullptr;
  try {
    return std::make_unique<StoreServer>(
        loop, StoreServerOptions{.host = listen_address(host), .port = port, .admission = std::move(admission)});
  } catch (const Error& error) {
    if (hosting == Hosting::required) throw;
    log::debug("not serving {}: {}", format_host_port(host, port), error.what());
    return nullptr;
  }
}

}  // namespace ddprun
