#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/trust/admission.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// Answers the questions of another agent's store server about sockets of this host (CONFIRM in PROTOCOL.md): yes for a
// socket that, as the kernel reports, a process of this user or of root has made, and that is part of the job if the
// admission requires this. So clients without the token, such as PyTorch's, are admitted there. Dials until it is
// connected, and again when the connection breaks.
//
// Ownership: the event loop must outlive it; keeps the admission, which must have credentials. The destructor ends the
// connection. Threads: the loop's. Errors: none thrown; where the kernel answers no such questions a warning says so,
// and nothing is dialled.
class SocketConfirmer {
 public:
  SocketConfirmer(boost::asio::io_context& loop, const std::string& host, std::uint16_t port,
                  std::shared_ptr<const Admission> admission);
  ~SocketConfirmer();
  SocketConfirmer(const SocketConfirmer&) = delete;
  SocketConfirmer& operator=(const SocketConfirmer&) = delete;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ddprun
