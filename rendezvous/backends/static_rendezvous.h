#pragma once

#include <memory>

#include "ddprun/rendezvous/backends/backends.h"

namespace ddprun {

// torchrun's static rendezvous on the wire: node rank 0 serves the store, each node brings its rank, all nodes have to
// come, and the workers meet at that same store. Where all agents are ddprun's, rounds, failures and the verdict go by
// sessions to that server, job-wide as with c10d. With a torchrun agent among them this agent behaves as torchrun does:
// it restarts its own workers from a budget of its own, and meets the others at the exit barrier.
std::unique_ptr<RendezvousBackend> open_static(boost::asio::io_context& loop, const BackendOptions& options);

}  // namespace ddprun
