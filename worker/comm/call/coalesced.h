#pragma once

#include <functional>

#include "ddprun/worker/comm/call/checked_call.h"
#include "ddprun/worker/comm/transport/transport.h"

namespace ddprun::comm {

// A collective on many spans as a few on one each: small neighbours of one type are packed together, large ones go
// alone, without a copy. The same at every rank. carry_out_one blocks.
void carry_out_coalesced(const Collective& collective, Seat seat,
                         const std::function<void(const Collective&)>& carry_out_one);

}  // namespace ddprun::comm
