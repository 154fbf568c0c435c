#pragma once

#include <functional>
#include <memory>
#include <string>

#include "ddprun/worker/comm/forming/rank_place.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// What fits ranks that run there. The same choice at every rank; may throw.
using ChooseTransport = std::function<std::shared_ptr<Transport>(const RankPlaces&)>;

// A transport that is chosen when it connects, once the ranks have told each other where they run; deviceless: as of
// RankPlace, of this one.
std::shared_ptr<Transport> make_placed_transport(const GroupOptions& options, ChooseTransport choose,
                                                 std::string deviceless = "");

}  // namespace ddprun::comm
