#pragma once

#include <functional>
#include <memory>

#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/checked_call.h"
#include "ddprun/worker/comm/operations/transfer.h"

// Collectives composed of simpler ones, for all back ends in one place. Blocking; they throw what the functions that
// they are given throw.
namespace ddprun::comm {

using ExecuteOne = std::function<void(const Collective&)>;
using StartTransfer = std::function<std::unique_ptr<Transfer>(const Operation&, Span memory)>;

// Whether compose() would pass the collective on unchanged: it is not coalesced, not a premultiplied sum, and an
// allreduce or a reduce at its root is in place.
bool is_elementary(const Collective& collective, RankInfo rank_info);

// Executes a collective as elementary ones.
void compose(const Collective& collective, RankInfo rank_info, const ExecuteOne& execute_one);

// allgather, gather, scatter and all_to_all, in equal or unequal parts, as sends and receives between all pairs of
// ranks that exchange data, all at once. The transfers must make progress without being waited for.
void compose_of_transfers(const Collective& collective, RankInfo rank_info, const StartTransfer& start);

}  // namespace ddprun::comm
