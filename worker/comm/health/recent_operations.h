#pragma once

#include <chrono>
#include <vector>

#include "ddprun/rendezvous/progress/rank_record.h"
#include "ddprun/worker/comm/health/operation_log.h"

namespace ddprun::comm {

// What a rank publishes of its operation_log: the collectives around the one it is in, or comes to next, and the sends
// and receives in progress; a few of each.
std::vector<RankOperation> recent_operations(const OperationLog& operation_log, OperationLog::Clock::time_point now);

// The sends and receives in progress whose other ends may be compared with them: since that long, so that a heartbeat
// of theirs tells of it too, and known by partner and number. The oldest few: an end publishes no more, and who asks
// for many would keep the store busy.
std::vector<OperationLog::Entry> transfers_to_compare(const OperationLog& operation_log,
                                                      OperationLog::Clock::time_point now,
                                                      std::chrono::milliseconds since);

// The oldest send or receive in progress with each partner, since that long; from any rank is no partner.
std::vector<OperationLog::Entry> oldest_by_partner(const OperationLog& operation_log,
                                                   OperationLog::Clock::time_point now,
                                                   std::chrono::milliseconds since);

}  // namespace ddprun::comm
