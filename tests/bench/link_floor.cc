#include "tests/bench/link_floor.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "common/error.h"

namespace ddprun::bench {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;  // of what goes one way

void check(bool holds, const char* what) {
  if (!holds) throw make_error(Errc::io, "{}: {}", what, errno_text(errno));
}

sockaddr_in at(const std::string& address, std::uint16_t port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(port);
  check(::inet_pton(AF_INET, address.c_str(), &result.sin_addr) == 1, address.c_str());
  return result;
}

UniqueFd open_socket() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  check(static_cast<bool>(fd), "socket");
  return fd;
}

}  // namespace

LinkFloor LinkFloor::listen(const std::string& address) {
  auto fd = open_socket();
  const auto own = at(address, 0);
  check(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0, "bind");
  check(::listen(fd.get(), 1) == 0, "listen");
  return LinkFloor(std::move(fd));
}

LinkFloor LinkFloor::dial(const std::string& address, std::uint16_t port) {
  auto fd = open_socket();
  const auto other = at(address, port);
  check(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&other), sizeof other) == 0, "connect");
  return LinkFloor(std::move(fd));
}

std::uint16_t LinkFloor::port() const {
  sockaddr_in own{};
  socklen_t length = sizeof own;
  check(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0, "getsockname");
  return ntohs(own.sin_port);
}

void LinkFloor::accept() {
  fd_ = UniqueFd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  check(static_cast<bool>(fd_), "accept");
}

void LinkFloor::exchange(std::size_t bytes) {
  memory_.resize(2 * bytes);
  std::size_t sent = 0, received = 0;
  while (sent < bytes || received < bytes) {
    pollfd ready{fd_.get(), static_cast<short>((sent < bytes ? POLLOUT : 0) | (received < bytes ? POLLIN : 0)), 0};
    check(::poll(&ready, 1, 60'000) == 1, "the other end");
    if (ready.revents & POLLOUT) {
      const auto count = ::send(fd_.get(), memory_.data() + sent, bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      check(count > 0 || errno == EAGAIN, "send");
      sent += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    if (ready.revents & (POLLIN | POLLHUP | POLLERR)) {
      const auto count = ::recv(fd_.get(), memory_.data() + bytes + received, bytes - received, MSG_DONTWAIT);
      check(count > 0 || (count < 0 && errno == EAGAIN), "recv");
      received += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
  }
}

void LinkFloor::send(std::size_t bytes) {
  memory_.resize(piece_bytes);
  for (std::size_t sent = 0; sent < bytes;) {
    const auto count = ::send(fd_.get(), memory_.data(), std::min(piece_bytes, bytes - sent), MSG_NOSIGNAL);
    check(count > 0, "send");
    sent += static_cast<std::size_t>(count);
  }
}

void LinkFloor::receive(std::size_t bytes) {
  memory_.resize(piece_bytes);
  for (std::size_t received = 0; received < bytes;) {
    const auto count = ::recv(fd_.get(), memory_.data(), std::min(piece_bytes, bytes - received), 0);
    check(count > 0, "recv");
    received += static_cast<std::size_t>(count);
  }
}

}  // namespace ddprun::bench
