#pragma once

#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/comm/transport.h"

namespace ddprun::comm {

// A ProcessGroup over any Transport. It owns a thread that carries collectives out in order, where no caller's thread
// may or will; threads that wait for sends and receives, and a PeerMonitor that turns failures into a verdict on who is
// to blame. Throws what stood in the way of coming together, within the timeout.
std::unique_ptr<ProcessGroup> make_transport_group(std::shared_ptr<Transport> transport, const GroupOptions& options);

}  // namespace ddprun::comm
