#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "worker/comm/health/diagnosis.h"
#include "worker/comm/health/operation_log.h"
#include "worker/comm/health/rank_records.h"

namespace ddprun::comm {

// Compares this rank's collectives with those of the rank that it watches. Ranks that call different collectives under
// one number wait for each other for ever, or have finished them without data from each other. Once two differ, it
// collects what all ranks call under that number, since only the others show which of the two is the odd one. Used by
// one thread.
class DisagreementProbe {
 public:
  using Clock = OperationLog::Clock;

  // patience: the time within which all ranks that have called the collective publish it. records, operation_log:
  // outlive the probe.
  DisagreementProbe(RankRecords& records, const OperationLog& operation_log, int rank,
                    std::chrono::milliseconds patience)
      : records_(records), operation_log_(operation_log), rank_(rank), patience_(patience) {}

  // watched: the record of the rank that this one watches. identity: this rank's. Returns none while the two agree.
  // Throws what the store throws.
  std::optional<CollectiveCalls> look(Clock::time_point now, const std::optional<RankRecord>& watched,
                                      const std::string& identity);

 private:
  std::optional<Stall> own_that_differs(Clock::time_point now, const std::optional<RankRecord>& watched) const;

  RankRecords& records_;
  const OperationLog& operation_log_;
  const int rank_;
  const std::chrono::milliseconds patience_;
  std::optional<CollectiveCalls> found_;  // a call does not change, so it is kept once it is known
  Clock::time_point found_at_{};
};

}  // namespace ddprun::comm
