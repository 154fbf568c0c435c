#pragma once

#include <vector>

#include "worker/profiler/step_times.h"

namespace ddprun::trainer {

using profiler::StepTimes;

// Exchanges every so many steps the times of all ranks: as numbers that travel with a sum which the ranks compute
// anyway, in slots where all other ranks add zero. All ranks call the same methods in the same order. No I/O.
// A value. Threads: one at a time.
class RankTimes {
 public:
  static constexpr int window = 20;  // steps

  RankTimes(int rank, int size) : rank_(rank), size_(size) {}

  // Adds a step to the sums; the first of a session warms caches up and does not count.
  void step_done(const StepTimes& times);
  // Begins a window anew, with a step that warms up.
  void restart();
  // Appends this rank's numbers to the addends of a sum, when a window is complete.
  void append_to(std::vector<double>& addends);
  // The window's times by rank, from the sums of the addends; empty unless append_to() has appended.
  std::vector<StepTimes> take_from(const std::vector<double>& sums);

 private:
  const int rank_;
  const int size_;
  bool warm_ = false;
  int steps_ = 0;
  StepTimes own_;
  std::size_t appended_at_ = 0;  // 0 if nothing is under way
};

}  // namespace ddprun::trainer
