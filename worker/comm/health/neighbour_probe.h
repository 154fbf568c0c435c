#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "ddprun/worker/comm/health/freeze_detector.h"
#include "ddprun/worker/comm/health/rank_records.h"

namespace ddprun::comm {

// Finds frozen ranks whether or not anybody waits for them: each rank watches the heartbeats of the next one, so that
// the cost of a rank does not grow with the group, and every frozen rank or row of ranks has a watcher that lives. Only
// once the next one is suspicious are all looked at, so that the verdict names everybody who is silent. Who has left is
// seen by the way.
class NeighbourProbe {
 public:
  using Clock = std::chrono::steady_clock;
  // What else is known of a rank: "its process is stopped"; empty: nothing.
  using Describe = std::function<std::string(int rank)>;

  // bound: of silence, from the last heartbeat to the verdict; zero: any is borne. beat: of all ranks.
  NeighbourProbe(RankRecords& records, int rank, std::chrono::milliseconds bound, std::chrono::milliseconds beat,
                 Describe describe);

  // The earliest moment at which look() has something to do.
  Clock::time_point due() const { return next_look_; }
  // all_here: every rank has published a record. Throws what the store throws.
  // One rank a look, so that the own heartbeat does not wait for a long row of those that left.
  std::optional<Verdict> look(Clock::time_point now, bool all_here);
  // What the last look saw: whose record, and it.
  int watched() const { return watched_; }
  const std::optional<RankRecord>& record() const { return record_; }
  // The ranks that were watched until they left, with their last records.
  const std::map<int, RankRecord>& departed() const { return departed_; }

 private:
  int size() const { return records_.size(); }
  std::optional<Verdict> judge(bool all_here);

  RankRecords& records_;
  const int rank_;
  const std::chrono::milliseconds interval_;  // between two looks
  const Describe describe_;
  int watched_;
  std::optional<RankRecord> record_;
  std::map<int, RankRecord> departed_;
  FreezeDetector silence_;
  Clock::time_point next_look_;
  std::optional<RankRecords::Reading> baseline_;  // of all, since the watched one became suspicious
};

}  // namespace ddprun::comm
