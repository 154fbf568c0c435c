#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

// data.ledger: which samples each step of a run has trained, a line of JSON a step, so that it can be proved afterwards
// that the final weights have seen each sample of each epoch once. The same lines are in a file on each host.
namespace ddprun::trainer {

// A run's training in one process group. It goes on from a step of an earlier one: after a fault, a restart, a resume.
struct LedgerSession {
  std::string id;      // that no other session has
  std::string parent;  // the session that has made the step before; empty: none, or it had no ledger
  std::int64_t after = 0;
  int ranks = 1;
  std::uint64_t seed = 0;          // of the order of samples
  std::int64_t epoch_samples = 0;  // in the data set
  friend bool operator==(const LedgerSession&, const LedgerSession&) = default;
};

// An optimizer step of all ranks. Samples are positions in the order of their epoch.
struct LedgerStep {
  std::string session;
  std::int64_t step = 0;   // 1 is the first
  std::int64_t epoch = 0;  // likewise
  std::int64_t first = 0;
  std::int64_t samples = 0;
  bool ends_epoch = false;  // what is left of the epoch is not trained: it does not divide among the ranks
  friend bool operator==(const LedgerStep&, const LedgerStep&) = default;
};

using LedgerLine = std::variant<LedgerSession, LedgerStep>;

// Without the end of line.
std::string to_json(const LedgerLine& line);
// None: it is no whole line, as a process leaves one that is killed while it writes.
std::optional<LedgerLine> parse_ledger_line(std::string_view text);

}  // namespace ddprun::trainer
