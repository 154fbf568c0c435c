#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace ddprun {

// The time at which a rank came to the end of each phase of a recovery, by the machine's wall clock, which all ranks of
// a host share. A plain value.
struct RecoveryTimes {
  using Time = std::chrono::system_clock::time_point;

  int rank = 0;
  std::uint64_t generation = 0;  // that of the group that formed
  std::int64_t step = 0;         // the first one after the recovery
  Time noticed{};                // the group's failure was noticed; at a replacement, it is ready to join
  Time planned{};                // the launcher's decision was received
  Time formed{};                 // the group was formed
  Time healed{};                 // all ranks have the same step
  Time ready{};                  // a session of the group was made
  Time applied{};                // the step is done
};

// Returns one line of JSON, without the end of line; times are microseconds since the epoch.
std::string to_json(const RecoveryTimes& times);

// Adds a line to a file that several processes may write. Throws Errc::io naming the file.
void append_recovery(const std::filesystem::path& file, const RecoveryTimes& times);

}  // namespace ddprun
