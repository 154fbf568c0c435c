#pragma once

#include <memory>

#include "ddprun/rendezvous/backends.h"

namespace boost::asio {
class io_context;
}

namespace ddprun {

// The rendezvous of a job of one node (--standalone): the agent meets itself, without a socket. Rounds, restart budget
// and verdicts as the server-formed ones have them. The workers find their store at the loopback address.
std::unique_ptr<RendezvousBackend> open_lone_rendezvous(boost::asio::io_context& loop);

}  // namespace ddprun
