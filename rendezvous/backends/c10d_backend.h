#pragma once

#include <memory>

#include "ddprun/rendezvous/backends/backends.h"

namespace ddprun {

// Rounds formed by the server at the endpoint, over sessions. The host of the endpoint serves it: found out when
// opened, and again before each new try while nobody answers, so that another agent of that host replaces a server
// which goes away.
std::unique_ptr<RendezvousBackend> open_c10d(boost::asio::io_context& loop, const BackendOptions& options);

}  // namespace ddprun
