#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>

#include "ddprun/common/deadline.h"
#include "ddprun/common/unique_fd.h"

// TCP sockets as the store's two sides need them: close-on-exec, no delay, keep-alive on.
namespace ddprun::rendezvous {

struct SocketAddress {
  std::string address;  // numeric; an IPv4 address inside IPv6 is written as IPv4
  std::uint16_t port = 0;
};
SocketAddress peer_address(int fd);  // empty when there is none any more
SocketAddress local_address(int fd);

// Non-blocking. An empty host is the wildcard of IPv6 and IPv4 together, or of IPv4 alone where there is no IPv6.
// Throws Errc::io naming the address.
UniqueFd listen_on(const std::string& host, std::uint16_t port);

// The next connection, non-blocking, or none with errno set.
UniqueFd accept_from(int listener);

// A non-blocking socket connected to host:port, after one try of each address that the name has.
// Throws Errc::unreachable (nobody there now: worth another try) or Errc::timeout, and at once when a stop is
// requested. Resolving a name takes as long as the system's resolver likes.
UniqueFd connect_once(const std::string& host, std::uint16_t port, Deadline deadline, const std::stop_token& stop = {});

// From its construction to its end: a request to stop breaks the connection, so that whoever waits for it learns so at
// once.
class BreakOnStop {
 public:
  BreakOnStop(int fd, const std::stop_token& stop) : callback_(stop, Break{fd}) {}

 private:
  struct Break {
    int fd;
    void operator()() const noexcept;
  };
  std::stop_callback<Break> callback_;
};

// Over a connected socket; errors are Errc::timeout and Errc::connection_lost with the bare cause.
void send_all(int fd, std::string_view bytes, Deadline deadline);
// At least one byte, at most size.
std::size_t receive_some(int fd, char* buffer, std::size_t size, Deadline deadline);

}  // namespace ddprun::rendezvous
