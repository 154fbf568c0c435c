#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/invariant_checker.h"

namespace ddprun::testing {

struct SweepOptions {
  std::uint64_t first = 1, last = 1;  // seeds
  int max_nodes = 12;
  bool all_nodes = false;
  bool trace = false;
};

struct SweepResult {
  std::uint64_t schedules = 0;
  InvariantChecker::Counts counts;
  std::vector<std::string> broken;  // a line each, with the command that replays it

  void add(const SweepResult& other);
  // Returns a readable summary.
  std::string text() const;
};

// Runs one schedule per seed on this thread.
SweepResult sweep(const SweepOptions& options);

}  // namespace ddprun::testing
