#include "common/loopback.h"

#include <cstdint>
#include <cstring>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/error.h"
#include "common/unique_fd.h"

namespace ddprun {
namespace {

// An interface that is down keeps its IPv4 address and the route to it.
bool is_down(int socket) {
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  return ::ioctl(socket, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
}

// Returns whether this host has the address. Connecting a UDP socket sends nothing.
template <class Address>
bool is_reachable(const Address& address, sa_family_t family) {
  const UniqueFd socket(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return socket && !is_down(socket.get()) &&
         ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

std::optional<std::string> find_loopback() {
  constexpr std::uint16_t any_port = 9;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(any_port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (is_reachable(v4, AF_INET)) return "127.0.0.1";
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(any_port);
  v6.sin6_addr = in6addr_loopback;
  if (is_reachable(v6, AF_INET6)) return "::1";
  return std::nullopt;
}

std::string loopback_address() {
  if (auto address = find_loopback()) return *std::move(address);
  throw make_error(Errc::unreachable,
                   "this host has no loopback address, over which the processes of a job reach each other: is the "
                   "interface lo up? (ip link set lo up)");
}

}  // namespace ddprun
