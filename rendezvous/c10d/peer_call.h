#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/host_port.h"
#include "rendezvous/trust/credentials.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

struct PeerAnswer {
  enum class Kind : std::uint8_t {
    refused,   // the kernel there refuses the connection: no process listens at the port
    failed,    // no answer, or none in time
    answered,  // frame is the answer; empty if nothing was sent
  } kind = Kind::failed;
  std::string frame;
};

// Sends one frame of a session to the agent at this address, and passes on its first answer. Without a frame it only
// connects. done is called once, from the loop, not from within this call. credentials: null: clear text.
// Ownership: the loop must outlive the call. Errors: none thrown.
void call_peer(boost::asio::io_context& loop, const HostPort& peer, std::string frame,
               std::shared_ptr<const Credentials> credentials, std::chrono::milliseconds bound,
               std::function<void(PeerAnswer)> done);

}  // namespace ddprun
