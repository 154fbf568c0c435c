#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "worker/comm/health/diagnosis.h"
#include "worker/comm/health/operation_log.h"
#include "worker/comm/health/rank_records.h"

namespace ddprun::comm {

// A transport's failure in an operation of this rank.
struct TransportFailure {
  OperationLog::Entry entry;
  std::string message;
  OperationLog::Clock::time_point at;
};

// Observes all ranks at two moments when an operation of this rank passes its deadline, or its transport fails. The
// first observation is made one window before the deadline. Used by one thread.
class OverdueProbe {
 public:
  using Clock = OperationLog::Clock;

  // window: the least time between two observations that shows a missing heartbeat. records, operation_log: outlive the
  // probe.
  OverdueProbe(RankRecords& records, const OperationLog& operation_log, int rank, std::chrono::milliseconds window)
      : records_(records), operation_log_(operation_log), rank_(rank), window_(window) {}

  // The time after a transport's failure within which the store may still report its cause: the connections of a dead
  // process close within milliseconds of each other.
  static constexpr std::chrono::milliseconds cause_delay{300};

  // failure: the transport's, if it failed. A store that does not answer is part of the result; other errors of the
  // store are thrown.
  std::optional<OverdueOperation> look(Clock::time_point now, const std::optional<TransportFailure>& failure);
  // Returns whether the first observation has been made.
  bool observing() const { return baseline_.has_value(); }

 private:
  std::optional<OperationLog::Entry> nearest_deadline(Clock::time_point now) const;
  void observe_latest(OverdueOperation& overdue);

  RankRecords& records_;
  const OperationLog& operation_log_;
  const int rank_;
  const std::chrono::milliseconds window_;
  std::optional<RankRecords::Snapshot> baseline_;
};

}  // namespace ddprun::comm
