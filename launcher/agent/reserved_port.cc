#include "launcher/agent/reserved_port.h"

#include <cerrno>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/error.h"

namespace ddprun {
namespace {

// Returns a socket bound to a free port of all addresses of a family (AF_INET6: IPv4 too); empty with errno on failure.
UniqueFd bind_any(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  const int on = 1, off = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  sockaddr_storage any{};
  any.ss_family = static_cast<sa_family_t>(family);
  const socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), size) == 0) return fd;
  const int cause = errno;
  fd.reset();
  errno = cause;
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

ReservedPort::ReservedPort() : socket_(bind_any(AF_INET6)) {
  if (!socket_ && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL)) socket_ = bind_any(AF_INET);
  if (!socket_) throw make_error(Errc::io, "no free port for the store of worker 0: {}", errno_text(errno));
  port_ = port_of(socket_.get());
}

}  // namespace ddprun
