#pragma once

#include <memory>

#include "ddprun/worker/comm/backends/gloo/links.h"
#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// Ranks that exchange over TCP by Gloo's pairs: between hosts, and the plain choice on one. Allreduce of a small
// buffer is one exchange of every rank with every other; of a larger one, two of a part of it; of a large one, Gloo's
// ring. 16-bit floats round once a step of the ring. A loopback address serves ranks that share a network alone:
// between hosts it is replaced by the one that routes to the others. A single rank gets a self group. Throws what
// make_transport_group throws; Errc::usage for a local_address that is neither address nor interface, and where no
// address leads to the others.
std::unique_ptr<ProcessGroup> make_gloo_group(const GroupOptions& options);
// The transport of such a group, of two ranks or more; local_address is an address by which all others reach this rank.
std::shared_ptr<Transport> make_gloo_transport(const GroupOptions& options, Links links = Links::own);

}  // namespace ddprun::comm
