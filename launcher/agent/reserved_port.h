#pragma once

#include <cstdint>

#include "common/unique_fd.h"

namespace ddprun {

// A TCP port of this host that is kept free for one worker to listen on. Until then the kernel gives it to no program
// that asks for any free port, to listen on or to connect from. A program that names the port and sets SO_REUSEADDR, as
// PyTorch's and our store servers do, can bind it and listen on it, at any address.
//
// Owns a socket; the destructor releases the port, which a worker that listens on it keeps. Not thread-safe.
class ReservedPort {
 public:
  // Throws Errc::io when there is no free port.
  ReservedPort();

  std::uint16_t port() const { return port_; }

 private:
  UniqueFd socket_;  // bound but not listening: on Linux others can then bind and listen on the same address
  std::uint16_t port_ = 0;
};

}  // namespace ddprun
