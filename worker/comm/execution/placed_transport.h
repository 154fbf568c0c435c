#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ddprun/worker/comm/bootstrap/rank_location.h"
#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/group_options.h"

namespace ddprun::comm {

// What fits ranks that run there. The same choice at every rank; may throw.
using ChooseTransport = std::function<std::shared_ptr<Transport>(const RankLocations&)>;

// A transport that is chosen when it connects, once the ranks have told each other where they run; deviceless: as of
// RankLocation, of this one.
std::shared_ptr<Transport> make_placed_transport(const GroupOptions& options, ChooseTransport choose,
                                                 std::string deviceless = "");

}  // namespace ddprun::comm
