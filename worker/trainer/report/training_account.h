#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/progress/training_record.h"
#include "worker/profiler/step_times.h"

namespace ddprun::trainer {

// Sums up the events of a run in the record that its watchers see. No I/O and no clock: times are passed in.
// A value. Threads: one at a time.
class TrainingAccount {
 public:
  // The times of a clock that does not jump, from any origin, and of the wall clock since the epoch.
  struct Now {
    std::chrono::duration<double> steady{0};
    std::chrono::milliseconds wall{0};
  };
  struct Place {
    std::int64_t pid = 0;
    int rank = 0;
    int size = 1;
  };
  // An optimizer step, or several, that are done.
  struct Steps {
    std::int64_t step = 0;  // the last of them
    std::int64_t count = 1;
    std::int64_t total = 0;  // that of the run
    std::int64_t epoch = 0;
    std::int64_t epochs = 0;
    std::int64_t samples = 0;         // those of all ranks
    std::int64_t tokens = 0;          // those in these samples; 0 if they have none
    std::optional<double> loss = {};  // none if not known yet
    double learning_rate = 0;
    std::optional<double> gradient_norm = {};
    profiler::StepTimes times = {};
    std::vector<profiler::StepTimes> rank_times = {};  // those of some steps, by rank; empty if not known now
    int rank_steps = 1;                                // the number of steps of rank_times
  };

  explicit TrainingAccount(bool wants_standby = false) { record_.wants_standby = wants_standby ? 1 : 0; }

  // A session in a process group begins.
  void start(Now now, Place place);
  void steps_done(Now now, const Steps& steps);
  // Repeats the same steps after a fault, or those of a process that this one replaces: notes the position of the run,
  // without the time and samples.
  void steps_repeated(Now now, const Steps& steps);
  void evaluated(Now now, double loss, std::optional<double> accuracy);
  // Notes that this rank saves a checkpoint of the last step: the time until the next step is the checkpoint's.
  void checkpoint_begins() { checkpoint_under_way_ = true; }
  // Notes that the checkpoint of a step is complete. wall: when it was.
  void checkpoint_saved(std::int64_t step, std::chrono::milliseconds wall);
  void run_finished(Now now);

  const TrainingRecord& record() const { return record_; }

 private:
  void record_position(Now now, const Steps& steps);
  void record_checkpoint(double seconds);
  void count_step(const Steps& steps);
  void measure_rate(const Steps& steps);

  TrainingRecord record_;
  std::chrono::duration<double> accounted_{0};  // the time up to which the record accounts
  bool checkpoint_under_way_ = false;
  double rate_seconds_ = 0;  // the time since the rate was measured last
  std::int64_t rate_samples_ = 0;
};

// Returns how much longer a rank takes for a step, without waiting for others, than the lower median of all ranks.
double lateness_of(const std::vector<profiler::StepTimes>& ranks, int rank, int steps);

}  // namespace ddprun::trainer
