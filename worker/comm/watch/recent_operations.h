#pragma once

#include <vector>

#include "ddprun/rendezvous/progress/rank_record.h"
#include "ddprun/worker/comm/watch/ledger.h"

namespace ddprun::comm {

// What a rank publishes of its ledger: the collectives around the one it is in, or comes to next, and the sends and
// receives in progress; a few of each.
std::vector<RankOperation> recent_operations(const Ledger& ledger, Ledger::Clock::time_point now);

}  // namespace ddprun::comm
