#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// Makes the same kind of group for some of a group's ranks.
using MakeSibling = std::unique_ptr<ProcessGroup> (*)(const GroupOptions&);

// A ProcessGroup over any Transport: an Executor that carries collectives out, in lanes or in the callers' own threads;
// threads that wait for sends and receives; and a PeerMonitor that turns failures into a verdict on who is to blame.
// Without make_sibling there are no subgroups. Throws what stood in the way of coming together, within the timeout.
std::unique_ptr<ProcessGroup> make_transport_group(std::shared_ptr<Transport> transport, const GroupOptions& options,
                                                   MakeSibling make_sibling = nullptr);

}  // namespace ddprun::comm
