#pragma once

#include <chrono>
#include <optional>

#include "worker/comm/health/diagnosis.h"
#include "worker/comm/health/freeze_detector.h"
#include "worker/comm/health/rank_records.h"

namespace ddprun::comm {

// Watches the heartbeats of the next rank that has not left, so that frozen ranks are found whether or not another rank
// waits for them. A rank's cost does not grow with the group, and of several frozen ranks in a row the one before them
// still watches. Only when the next rank is suspicious are all ranks observed, so that the failure names every silent
// one. Used by one thread.
class NeighbourProbe {
 public:
  using Clock = std::chrono::steady_clock;

  // bound: that of silence, from the last heartbeat to the failure; zero means none. beat: the heartbeat interval of
  // all ranks. records: outlives the probe.
  NeighbourProbe(RankRecords& records, int rank, std::chrono::milliseconds bound, std::chrono::milliseconds beat);

  // The earliest time at which look() has something to do.
  Clock::time_point due() const { return next_look_; }
  // Reads the watched rank's record if it is due; one rank a call, so that this rank's own heartbeat is not delayed by
  // a long row of ranks that left. Returns the silence once its bound has passed. all_joined: every rank has published
  // a record. Throws what the store throws.
  std::optional<Silence> look(Clock::time_point now, bool all_joined);
  // The rank that is watched, and its record as of the last look.
  int watched() const { return watched_; }
  const std::optional<RankRecord>& record() const { return record_; }
  // The last records of ranks that were watched until they left.
  const PeerRecords& departed() const { return departed_; }

 private:
  int size() const { return records_.size(); }
  std::optional<Silence> find_silence(bool all_joined);

  RankRecords& records_;
  const int rank_;
  const std::chrono::milliseconds interval_;  // the time between two looks
  int watched_;
  std::optional<RankRecord> record_;
  PeerRecords departed_;
  FreezeDetector silence_;
  Clock::time_point next_look_;
  std::optional<RankRecords::Snapshot> baseline_;  // the records of all ranks, since the watched one became suspicious
};

}  // namespace ddprun::comm
