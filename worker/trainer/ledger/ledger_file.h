#pragma once

#include <filesystem>

#include "common/unique_fd.h"
#include "worker/trainer/ledger/ledger_lines.h"

namespace ddprun::trainer {

// data.ledger at the process that writes it: lines are added after those that are there, of the same run or of earlier
// ones. A line is one write, so that a process that is killed leaves it whole or not at all.
//
// Ownership: owns the descriptor. Threads: one at a time. Errors: Errc::io naming the file.
class LedgerFile {
 public:
  explicit LedgerFile(std::filesystem::path path);

  void add(const LedgerLine& line);
  // Flushes to the disk.
  void flush();

 private:
  void write(const std::string& text);

  const std::filesystem::path path_;
  UniqueFd fd_;
};

}  // namespace ddprun::trainer
