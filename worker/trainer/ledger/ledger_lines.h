#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

// data.ledger: the samples that each step of a run has trained, a line of JSON a step, to prove afterwards that the
// final weights have seen each sample of each epoch once. The same lines are in a file on each host.
namespace ddprun::trainer {

// A run's training in one process group. It starts at a step of an earlier one: after a fault, a restart, a resume.
struct LedgerSession {
  std::string id;      // unique among sessions
  std::string parent;  // the session that made the step before; empty if there is none, or it had no ledger
  std::int64_t after = 0;
  int ranks = 1;
  std::uint64_t seed = 0;          // that of the order of samples
  std::int64_t epoch_samples = 0;  // those in the data set
  // Set if ranks had made this later step, and returned to an earlier one without being started again.
  std::optional<std::int64_t> rolled_back_from = {};
  friend bool operator==(const LedgerSession&, const LedgerSession&) = default;
};

// An optimizer step of all ranks. Samples are positions in the order of their epoch.
struct LedgerStep {
  std::string session;
  std::int64_t step = 0;   // 1 is the first
  std::int64_t epoch = 0;  // counted from 1 as well
  std::int64_t first = 0;
  std::int64_t samples = 0;
  bool ends_epoch = false;  // true if the rest of the epoch is not trained: it does not divide among the ranks
  friend bool operator==(const LedgerStep&, const LedgerStep&) = default;
};

using LedgerLine = std::variant<LedgerSession, LedgerStep>;

// The result has no end of line.
std::string to_json(const LedgerLine& line);
// Returns none if it is no whole line: a process that is killed while it writes leaves such a line.
std::optional<LedgerLine> parse_ledger_line(std::string_view text);

}  // namespace ddprun::trainer
