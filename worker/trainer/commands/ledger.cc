#include <string>
#include <vector>

#include <fmt/format.h>

#include "common/atomic_file.h"
#include "common/error.h"
#include "common/exit_code.h"
#include "common/standard_output.h"
#include "worker/trainer/commands/command.h"
#include "worker/trainer/ledger/ledger_history.h"

namespace ddprun::trainer {
namespace {

constexpr std::size_t most_problems = 10;  // the most that are printed

std::string text_of(const LedgerVerdict& v) {
  return fmt::format(
      "{} steps in {} sessions up to session {}: {} complete epochs, {} samples, each once in its epoch; {} left out "
      "at ends of epochs, {} steps abandoned\nsha256:{}\n",
      v.steps, v.sessions, v.session, v.epochs, v.samples, v.left_out, v.abandoned, v.hash);
}

// Prints what the ledgers prove, or throws with what is wrong in them.
int verify(const std::vector<std::string>& words) {
  if (words.size() < 2 || words.front() != "verify")
    throw Error(Errc::usage, "expected: ddprun-worker ledger verify FILE...");
  LedgerHistory history;
  for (auto file = words.begin() + 1; file != words.end(); ++file) history.add_file(*file, read_whole_file(*file));
  const auto verdict = history.verify();
  if (verdict.problems.empty()) {
    write_standard_output(text_of(verdict));
    return exit_success;
  }
  std::string text;
  for (std::size_t i = 0; i < verdict.problems.size() && i < most_problems; ++i) text += verdict.problems[i] + "\n";
  write_standard_output(text);
  const auto count = verdict.problems.size();
  throw make_error(Errc::mismatch, "the ledger has {} problem{}, of which the first is: {}", count,
                   count == 1 ? "" : "s", verdict.problems.front());
}

}  // namespace

Command ledger_command() {
  return {.name = "ledger",
          .usage = "ledger verify FILE...",
          .help =
              "ledger verify proves from the files of data.ledger, of all hosts, that the final weights have seen each "
              "sample of each epoch once.\n",
          .run_words = verify};
}

}  // namespace ddprun::trainer
