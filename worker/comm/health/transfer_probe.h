#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "worker/comm/health/diagnosis.h"
#include "worker/comm/health/operation_log.h"
#include "worker/comm/health/rank_records.h"

namespace ddprun::comm {

// Compares this rank's sends and receives with the records of their partners: the two ends of a message that differ may
// wait for each other for ever, and so does one end whose partner left the group. Used by one thread.
class TransferProbe {
 public:
  using Clock = OperationLog::Clock;

  // beat: the heartbeat interval; a message younger than that is not in its partner's record yet. records,
  // operation_log: outlive the probe.
  TransferProbe(RankRecords& records, const OperationLog& operation_log, int rank, std::chrono::milliseconds beat)
      : records_(records), operation_log_(operation_log), rank_(rank), beat_(beat) {}

  // Adds to the facts. departed: the last records of ranks that left. Throws what the store throws.
  void look(Clock::time_point now, const PeerRecords& departed, Facts& facts);

 private:
  PeerRecords read_partners(const std::vector<OperationLog::Entry>& messages);
  void add_departure(const OperationLog::Entry& entry, const PeerRecords& records, Clock::time_point now, Facts& facts);

  RankRecords& records_;
  const OperationLog& operation_log_;
  const int rank_;
  const std::chrono::milliseconds beat_;
  std::map<int, Clock::time_point> noticed_;  // by Stall::partner(): the time when all partners were found to have left
};

}  // namespace ddprun::comm
