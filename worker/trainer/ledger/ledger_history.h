#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "worker/trainer/ledger/ledger_lines.h"

namespace ddprun::trainer {

// The result of verifying the ledgers of a run.
struct LedgerVerdict {
  std::string session;  // the last one, whose weights are the final ones
  int sessions = 0;     // the number from the first one to that
  std::int64_t steps = 0;
  std::int64_t epochs = 0;     // the number of complete ones
  std::int64_t samples = 0;    // trained, in all epochs
  std::int64_t left_out = 0;   // those at the ends of epochs that do not divide among the ranks
  std::int64_t abandoned = 0;  // steps that were made and are not in the final weights
  // The hash of the steps and their samples: the same for runs that have trained the same samples in the same order,
  // however often they were interrupted. Empty if there are problems.
  std::string hash;
  std::vector<std::string> problems;  // what is missing, twice or contradictory, a sentence each; empty if none
};

// The history of a run from its ledgers: sessions, each from a step of its parent on. Only those steps of a session
// count that come before the step from which its successor goes on.
//
// A value. Threads: not thread-safe. Errors: it throws none; the verdict has them.
class LedgerHistory {
 public:
  // file: its name, for messages. text: its lines, in order; those of several hosts may come one after the other.
  void add_file(std::string_view file, std::string_view text);

  LedgerVerdict verify() const;

 private:
  struct SessionRecord {
    LedgerSession begin;
    std::map<std::int64_t, LedgerStep> steps;
  };

  struct CommittedStep {
    LedgerStep step;
    const LedgerSession* session;
  };
  using Committed = std::map<std::int64_t, CommittedStep>;

  void add(std::string_view file, const LedgerSession& session);
  void add(std::string_view file, const LedgerStep& step);
  std::vector<const SessionRecord*> lineage(const std::string& last) const;
  std::string last_session(std::vector<std::string>& problems) const;
  static Committed committed(const std::vector<const SessionRecord*>& lineage, std::vector<std::string>& problems);
  std::int64_t steps_made() const;

  std::map<std::string, SessionRecord> sessions_;
  std::vector<std::string> ends_;  // the last session of each file that has one
  std::vector<std::string> contradictions_;
};

}  // namespace ddprun::trainer
