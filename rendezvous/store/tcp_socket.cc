#include "rendezvous/store/tcp_socket.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <climits>

#include "common/error.h"
#include "common/host_port.h"
#include "rendezvous/store/host_lookup.h"

namespace ddprun::rendezvous {
namespace {

constexpr int keep_alive_idle_s = 60;
constexpr int keep_alive_interval_s = 15;
constexpr int keep_alive_probes = 4;
constexpr std::chrono::seconds listen_lookup_timeout{30};
constexpr std::chrono::milliseconds tolerated_delay{50};  // of the end of a wait, after its deadline

void set_option(int fd, int level, int option, int value) {
  ::setsockopt(fd, level, option, &value, sizeof value);
}

// Returns no descriptor, with errno set, if the address cannot be bound.
UniqueFd try_listen(const sockaddr* address, socklen_t size) {
  UniqueFd fd(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  // All ranks of a job connect at once, so the queue is the longest that the system allows.
  if (::bind(fd.get(), address, size) != 0 || ::listen(fd.get(), INT_MAX) != 0) {
    const int cause = errno;
    fd.reset();
    errno = cause;
  }
  return fd;
}

UniqueFd try_listen_wildcard(std::uint16_t port) {
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  auto fd = try_listen(reinterpret_cast<const sockaddr*>(&v6), sizeof v6);
  if (fd || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)) return fd;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  return try_listen(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
}

// Returns false at the deadline. A wait that ends late, because this process was stopped or starved, goes on for as
// long as it was late, and at most for its first limit: the peer may have been stopped with it.
bool wait_ready(int fd, short events, Deadline deadline) {
  const auto limit = deadline.remaining();
  bool may_go_on = limit > Deadline::Duration::zero();
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw make_error(Errc::connection_lost, "poll failed: {}", errno_text(errno));
    const auto now = Deadline::Clock::now();
    if (ready < 0 || !deadline.expired(now)) continue;
    if (!may_go_on) return false;
    const auto delay = std::min(now - *deadline.when(), limit);
    if (delay < tolerated_delay) return false;
    may_go_on = false;
    deadline = Deadline::in(delay, now);
  }
}

// Returns 0 or an errno; ETIMEDOUT at the deadline.
int try_connect(int fd, const HostAddress& address, Deadline deadline) {
  if (::connect(fd, address.get(), address.size) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_ready(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int cause = 0;
  socklen_t size = sizeof cause;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &size) == 0 ? cause : errno;
}

}  // namespace

SocketAddress describe(const sockaddr_storage& raw) {
  char text[INET6_ADDRSTRLEN] = "";
  if (raw.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(raw);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return {text, ntohs(v4.sin_port)};
  }
  if (raw.ss_family != AF_INET6) return {};
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(raw);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
    ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
  else
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  return {text, ntohs(v6.sin6_port)};
}

SocketAddress peer_address(int fd) {
  sockaddr_storage raw{};
  socklen_t size = sizeof raw;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&raw), &size) == 0 ? describe(raw) : SocketAddress{};
}

SocketAddress local_address(int fd) {
  sockaddr_storage raw{};
  socklen_t size = sizeof raw;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &size) == 0 ? describe(raw) : SocketAddress{};
}

UniqueFd listen_on(const std::string& host, std::uint16_t port) {
  UniqueFd fd;
  if (host.empty()) {
    fd = try_listen_wildcard(port);
  } else {
    const auto addresses = look_up_host(host, port, Deadline::in(listen_lookup_timeout));
    if (!addresses.problem.empty()) throw make_error(Errc::unreachable, "{}", addresses.problem);
    fd = try_listen(addresses.found.front().get(), addresses.found.front().size);
  }
  if (!fd)
    throw make_error(Errc::io, "cannot listen at {}: {}", format_host_port(host.empty() ? "*" : host, port),
                     errno_text(errno));
  return fd;
}

void set_connection_options(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, keep_alive_idle_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, keep_alive_interval_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, keep_alive_probes);
}

void defer_accept(int listener) {
  set_option(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, 1);
}

UniqueFd accept_from(int listener, sockaddr_storage& peer) {
  socklen_t size = sizeof peer;
  return UniqueFd(::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

void ShutdownOnStop::Break::operator()() const noexcept {
  ::shutdown(fd, SHUT_RDWR);
}

UniqueFd connect_once(const std::string& host, std::uint16_t port, Deadline deadline, const std::stop_token& stop) {
  const auto addresses = look_up_host(host, port, deadline, stop);
  if (!addresses.problem.empty()) throw make_error(Errc::unreachable, "{}", addresses.problem);
  int cause = 0;
  for (const auto& address : addresses.found) {
    UniqueFd fd(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) {
      cause = errno;
      continue;
    }
    const ShutdownOnStop guard(fd.get(), stop);
    cause = stop.stop_requested() ? ECANCELED : try_connect(fd.get(), address, deadline);
    if (cause == 0) {
      set_connection_options(fd.get());
      return fd;
    }
  }
  throw make_error(cause == ETIMEDOUT && deadline.expired() ? Errc::timeout : Errc::unreachable,
                   "cannot connect to {}: {}", format_host_port(host, port), errno_text(cause));
}

void send_all(int fd, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      if (!wait_ready(fd, POLLOUT, deadline)) throw Error(Errc::timeout, "the server does not read the request");
    } else if (errno != EINTR) {
      throw make_error(Errc::connection_lost, "the connection broke: {}", errno_text(errno));
    }
  }
}

std::size_t receive_some(int fd, char* buffer, std::size_t size, Deadline deadline) {
  for (;;) {
    if (!wait_ready(fd, POLLIN, deadline)) throw Error(Errc::timeout, "no reply");
    const ssize_t n = ::recv(fd, buffer, size, MSG_DONTWAIT);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) throw Error(Errc::connection_lost, "the server closed the connection");
    if (errno != EAGAIN && errno != EINTR)
      throw make_error(Errc::connection_lost, "the connection broke: {}", errno_text(errno));
  }
}

}  // namespace ddprun::rendezvous
