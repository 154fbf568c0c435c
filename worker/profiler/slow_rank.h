#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "worker/profiler/step_times.h"

namespace ddprun::profiler {

// A rank for which the others wait.
struct SlowRank {
  int rank = 0;
  const char* part =
      "";          // what takes most of its additional time: data, upload, forward, backward, optimizer, communication
  Seconds own{0};  // the time of a step, without waiting for others
  Seconds others{0};  // the median of the other ranks' time without waiting
  Seconds part_own{0};
  Seconds part_others{0};
};

// Returns the slowest rank, if its own part of the steps takes more than 20 % longer than the median of the others', at
// least a millisecond a step more, since shorter steps differ by what else a machine does, and at least a tenth of a
// whole step with its waits, since the job loses nothing worth a line otherwise. ranks: the times of each, in all.
std::optional<SlowRank> find_slow_rank(const std::vector<StepTimes>& ranks, int steps);

// "rank 1 on host b is slower than the others: 42.0 ms a step, theirs 12.0 ms; data takes 31.0 ms, theirs 1.0 ms"
std::string slow_rank_line(const SlowRank& slow, const std::string& host);

// Says once for each rank and part that it is slow: when it has been the slow one in three observations in a row. Other
// work of a machine takes time from one rank and then from another. No I/O.
class SlowRankWatch {
 public:
  static constexpr int confirmations = 3;

  std::optional<SlowRank> observe(const std::vector<StepTimes>& ranks, int steps);

 private:
  std::pair<int, std::string> last_ = {-1, ""};
  int in_a_row_ = 0;
  std::set<std::pair<int, std::string>> reported_;
};

}  // namespace ddprun::profiler
