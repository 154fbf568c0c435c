#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/recovery_job.h"

namespace ddprun::testing {

// The behaviour of a simulated job's ranks: they train, and after a fault they do what their RecoveryState requests, by
// operations of their group that complete at some ranks and fail at others when a member dies.
//
// Ownership: the job outlives it.
class RecoveryTraining {
 public:
  explicit RecoveryTraining(RecoveryJob& job) : job_(job) {}

  // The rank contributes to the operation at which it is, or notices that this has completed or failed.
  void progress(Rank& rank);
  // The steps that rank 0 has recorded.
  const std::vector<std::int64_t>& records() const { return records_; }

 private:
  void execute(Rank& rank, const RecoveryState::AwaitPlan& request);
  void execute(Rank& rank, const RecoveryState::FormGroup&);
  void execute(Rank& rank, const RecoveryState::ComparePositions& request);
  void execute(Rank& rank, const RecoveryState::CopyState& request);
  void execute(Rank& rank, const RecoveryState::Train&);
  void execute(Rank& rank, const RecoveryState::Leave&);
  void execute(Rank& rank, const RecoveryState::GiveUp& request);

  void report_lost(Rank& rank);
  void nobody_reports(Rank& rank);
  void resume(Rank& rank);
  void have_effects(Rank& rank);
  void finish(Rank& rank);
  void leave(Rank& rank);

  // Where ranks have parts of the state.
  void keep_copies(Rank& rank);
  void set_aside(Rank& rank);
  void restore(Rank& rank, const Catchup& catchup);
  std::optional<Digest> digest_at(Rank& rank, const std::string& source, const Catchup& catchup);
  void count(const Rank& rank, const Catchup& catchup);
  std::size_t number_in_plan(const Rank& rank) const;

  bool collective(Rank& rank);
  bool broadcast(Rank& rank, const std::string& source);
  void contribute(Rank& rank);
  bool others_have_left(const Rank& rank);
  bool settle(Rank& rank, bool complete, bool dead);
  void fail(Rank& rank);

  RecoveryJob& job_;
  std::map<std::pair<std::uint64_t, std::string>, std::pair<Digest, std::int64_t>> copies_;
  std::vector<std::int64_t> records_;
};

}  // namespace ddprun::testing
