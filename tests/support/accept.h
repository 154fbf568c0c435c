#pragma once

#include <sys/socket.h>

#include "rendezvous/store/tcp_socket.h"

namespace ddprun::testing {

// Accepts the next connection of a listener, with the options of a connection; an empty one if there is none yet.
inline UniqueFd accept_next(int listener) {
  sockaddr_storage peer{};
  auto fd = rendezvous::accept_from(listener, peer);
  if (fd) rendezvous::set_connection_options(fd.get());
  return fd;
}

}  // namespace ddprun::testing
