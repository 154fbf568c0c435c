#pragma once

#include <string>

#include "worker/comm/bootstrap/rank_location.h"

namespace ddprun::comm {

// Returns the devices that several ranks have, by their bus ids, whatever each process calls them: "ranks 0 and 1 share
// the device 0000:01:00.0 of host a, ranks 2 and 3 the device 0000:01:00.0 of host b". Empty where none is shared.
std::string describe_shared_devices(const RankLocations& locations);

}  // namespace ddprun::comm
