#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "rendezvous/progress/rank_record.h"
#include "worker/comm/health/diagnosis.h"
#include "worker/comm/health/operation_log.h"

// Functions that read this rank's operation log for the probes. Any thread may call them.
namespace ddprun::comm {

// Returns the operations that a rank publishes: the collectives around the one it is in, or before its next one, and
// the oldest sends and receives in progress. There are a few of each.
std::vector<RankOperation> recent_operations(const OperationLog& operation_log, OperationLog::Clock::time_point now);

// Returns the oldest few sends and receives that have a known partner and number, and have been in progress for that
// long, so that the partner's heartbeat shows its end of them. There are no more than a partner publishes.
std::vector<OperationLog::Entry> transfers_to_compare(const OperationLog& operation_log,
                                                      OperationLog::Clock::time_point now,
                                                      std::chrono::milliseconds since);

// Returns the oldest send or receive with each partner that has been in progress for that long. A receive from any
// source has no partner.
std::vector<OperationLog::Entry> oldest_by_partner(const OperationLog& operation_log,
                                                   OperationLog::Clock::time_point now,
                                                   std::chrono::milliseconds since);

// Returns a receive from any source that is in progress, if there is one.
std::optional<OperationLog::Entry> receive_from_any(const OperationLog& operation_log);

// Returns the entry as the diagnosis sees it. rank: this rank.
Stall stall_of(int rank, const OperationLog::Entry& entry, OperationLog::Clock::time_point now);

}  // namespace ddprun::comm
