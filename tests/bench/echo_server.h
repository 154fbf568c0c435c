#pragma once

#include <cstdint>
#include <thread>

#include "common/unique_fd.h"

namespace ddprun::bench {

// The minimum that a TCP server can do on this machine: a thread that sends back all that it receives. It is the floor
// for a server's figures.
class EchoServer {
 public:
  EchoServer();
  ~EchoServer();

  std::uint16_t port() const;

 private:
  void serve();

  UniqueFd listener_;
  UniqueFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace ddprun::bench
