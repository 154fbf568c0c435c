#pragma once

#include <cstdint>

#include "ddprun/common/unique_fd.h"

namespace ddprun {

// A TCP port of this host kept free for one worker, which will listen at it. Whoever asks the kernel for any free port,
// to listen or to connect from, gets another one; so a port that was found free a moment ago cannot be lost to somebody
// else before the worker comes. A program that names this port and sets SO_REUSEADDR, as PyTorch's and our store
// servers do, can bind it and listen, at whatever address. The destructor gives the port up; a worker that listens
// keeps it.
class ReservedPort {
 public:
  // Throws Errc::io when there is no free port.
  ReservedPort();

  std::uint16_t port() const { return port_; }

 private:
  UniqueFd socket_;  // bound, never listening: on Linux it then stands in nobody's way who shares the address
  std::uint16_t port_ = 0;
};

}  // namespace ddprun
