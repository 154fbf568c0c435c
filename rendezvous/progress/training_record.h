#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ddprun {

// The state of a rank's training for those who watch the job: its agent reads it from memory that both share
// (training_memory.h). A plain value. The numbers of a step are the same at all ranks, except for the times of its
// parts. A number that is not known is NaN. Times are seconds unless their names end in _ms.
struct TrainingRecord {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  // Upper bounds of the histogram of step durations; the last bucket has none.
  static constexpr std::array<double, 12> step_bounds{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};

  std::int64_t pid = 0;
  std::int64_t time_ms = 0;  // when the record was made, since the epoch; 0: there is no record
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::int64_t step = 0;  // the last one done; 1 is the first
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  // 1 is the first
  std::int64_t epochs = 0;
  double loss = unknown;  // the last one that is known, mean over the global batch
  double learning_rate = unknown;
  double gradient_norm = unknown;  // before clipping
  double samples_per_s = unknown;  // over all ranks, and over the last second or the last step, whichever is longer
  double seconds_left = unknown;
  // 1 if the agent is to keep a standby process of this program, which can replace this one (standby_socket.h).
  std::int64_t wants_standby = 0;
  std::int64_t first_step_ms = 0;  // when the present process group did its first step, since the epoch; 0: not yet
  // Counted by this process since its first step: steps and samples of all ranks, and this rank's time by activity.
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;  // tokens in these samples; 0: they have none
  double data = 0;          // waiting for the loader, and copies to a device
  double compute = 0;
  double communication = 0;  // the part that is not hidden behind computation
  double checkpoint = 0;     // on the rank that writes it
  double evaluation = 0;
  double lateness = unknown;  // seconds a step that this rank takes longer on its own than the median of all ranks
  std::int64_t checkpoint_step = 0;
  std::int64_t checkpoint_ms = 0;  // when this process completed the last one, since the epoch; 0: none yet
  std::int64_t evaluation_step = 0;
  double evaluation_loss = unknown;
  double accuracy = unknown;                                          // 0 .. 1
  std::array<std::int64_t, step_bounds.size() + 1> step_counts = {};  // the histogram; the buckets are not cumulative

  double step_seconds() const { return data + compute + communication; }
};

static_assert(std::is_trivially_copyable_v<TrainingRecord> && sizeof(TrainingRecord) % sizeof(std::uint64_t) == 0);

}  // namespace ddprun
