#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>

#include "common/unique_fd.h"

// The owner of a TCP socket of this host, as the kernel reports it (sock_diag(7)).
namespace ddprun {

// Both ends of a TCP connection as one of its sockets sees them. An IPv4-mapped IPv6 address counts as IPv4.
struct SocketEnds {
  struct End {
    std::string address;  // numeric
    std::uint16_t port = 0;
    bool operator==(const End&) const = default;
  };
  End own, peer;
};

struct SocketOwner {
  uid_t user;
  std::uint64_t inode;  // by which /proc/PID/fd names the socket
};

// Asks the kernel about sockets of this host (of this network namespace).
//
// Ownership: owns its netlink socket. Threads: one at a time. Errors: see each function.
class SocketOwners {
 public:
  // Throws Errc::unsupported where the kernel does not answer such questions.
  SocketOwners();

  // Returns the owner of the connected socket with these ends; nullopt if this host has no such socket, or nobody holds
  // it. Listening sockets do not count. Throws Errc::io, and Errc::usage for an address that is not numeric.
  std::optional<SocketOwner> find(const SocketEnds& ends);

 private:
  UniqueFd netlink_;
  std::uint32_t sequence_ = 0;
};

}  // namespace ddprun
