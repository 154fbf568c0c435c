#pragma once

#include <memory>

#include "worker/comm/backends/gloo/links.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// Makes a group of ranks that exchange data over Gloo's TCP connections, between hosts or on one. Allreduce of a small
// buffer is one exchange between all ranks, of a medium one two exchanges of parts, of a large one Gloo's ring. 16-bit
// floats are rounded once per step. A loopback address is used only by ranks of one network; between hosts it is
// replaced by the address of the route to the peers. A single rank gets a self group. Throws what make_transport_group
// throws; Errc::usage for a local_address that is neither an address nor an interface, and where no address leads to
// the peers.
std::unique_ptr<ProcessGroup> make_gloo_group(const GroupOptions& options);
// The transport of such a group, for two ranks or more; local_address is an address at which all peers reach this rank.
std::shared_ptr<Transport> make_gloo_transport(const GroupOptions& options, Links links = Links::own);

}  // namespace ddprun::comm
