#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <sys/socket.h>

#include "common/deadline.h"
#include "common/unique_fd.h"

// TCP sockets for the store's client and server: close-on-exec, TCP_NODELAY, keep-alive.
namespace ddprun::rendezvous {

struct SocketAddress {
  std::string address;  // numeric; an IPv4 address inside IPv6 is written as IPv4
  std::uint16_t port = 0;
};
SocketAddress peer_address(int fd);  // empty if the socket is no longer connected
SocketAddress local_address(int fd);

// Returns a non-blocking listener. An empty host is the wildcard address of IPv6 and IPv4, or only of IPv4 if there is
// no IPv6. Throws Errc::io naming the address.
UniqueFd listen_on(const std::string& host, std::uint16_t port);

// Accepts the next connection, non-blocking; returns an empty one with errno set on failure. peer becomes the client's
// address, for describe(). The options of a connection, which take some system calls, are not set.
UniqueFd accept_from(int listener, sockaddr_storage& peer);
SocketAddress describe(const sockaddr_storage& address);
void set_connection_options(int fd);
// Has the kernel hold back a connection until its first bytes are here, or for a second: a silent client costs the
// server nothing until then. For servers whose clients send first.
void defer_accept(int listener);

// Returns a non-blocking socket connected to host:port; tries each address of the name once.
// Throws Errc::unreachable (worth a retry) or Errc::timeout, and returns at once with one of them if a stop is
// requested; a name lookup is given up then.
UniqueFd connect_once(const std::string& host, std::uint16_t port, Deadline deadline, const std::stop_token& stop = {});

// For its lifetime a stop request shuts the socket down, which ends a blocking read or poll of it. Borrows the socket,
// which must stay open. Threads: the stop may be requested on any thread. Errors: none.
class ShutdownOnStop {
 public:
  ShutdownOnStop(int fd, const std::stop_token& stop) : callback_(stop, Break{fd}) {}

 private:
  struct Break {
    int fd;
    void operator()() const noexcept;
  };
  std::stop_callback<Break> callback_;
};

// For a connected socket. Both throw Errc::timeout and Errc::connection_lost with only the cause. A wait that ends
// late, because this process was stopped or starved, goes on for as long as it was late, and at most for its first
// limit.
void send_all(int fd, std::string_view bytes, Deadline deadline);
// Receives at least one byte, at most size.
std::size_t receive_some(int fd, char* buffer, std::size_t size, Deadline deadline);

}  // namespace ddprun::rendezvous
