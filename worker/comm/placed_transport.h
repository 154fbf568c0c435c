#pragma once

#include <functional>
#include <memory>

#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/host_map.h"
#include "ddprun/worker/comm/transport.h"

namespace ddprun::comm {

// What fits ranks that run on these hosts. The same choice at every rank; may throw.
using ChooseTransport = std::function<std::shared_ptr<Transport>(const HostMap&)>;

// A transport that is chosen when it connects, once the ranks have told each other on which hosts they run.
std::shared_ptr<Transport> make_placed_transport(const GroupOptions& options, ChooseTransport choose);

}  // namespace ddprun::comm
