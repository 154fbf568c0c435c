#pragma once

#include <functional>

#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/checked_call.h"

namespace ddprun::comm {

// A collective on many spans as a few on one each: small neighbours of one type are packed together, large ones go
// alone, without a copy. The same at every rank. execute_one blocks.
void execute_coalesced(const Collective& collective, RankInfo rank_info,
                       const std::function<void(const Collective&)>& execute_one);

}  // namespace ddprun::comm
