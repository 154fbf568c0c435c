#pragma once

#include <memory>

#include "ddprun/rendezvous/backends/backends.h"

namespace ddprun {

// Rounds that live in etcd v3: no agent's host is needed by all. Serves nothing here but the store of group rank 0's
// workers.
std::unique_ptr<RendezvousBackend> open_etcd(boost::asio::io_context& loop, const BackendOptions& options);

}  // namespace ddprun
