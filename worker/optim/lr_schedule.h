#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::optim {

// Lengths are in the schedule's unit: optimizer steps, or epochs.
struct LrScheduleOptions {
  std::string name = "constant";
  double lr = 1e-3;                      // the first rate of the curve after the warm-up; onecycle: its maximum
  std::int64_t warmup = 0;               // time in which the rate rises linearly to the curve's first; 0: no warm-up
  double warmup_start = 0.01;            // the rate begins with the curve's first times this factor
  std::int64_t length = 1;               // that of the whole curve with its warm-up: cosine, linear, onecycle
  double end_factor = 0;                 // cosine, linear: the last rate is lr times this
  double gamma = 0.1;                    // step, multistep: factor of each decay
  std::int64_t step_size = 1;            // step: time between two decays
  std::vector<std::int64_t> milestones;  // multistep: ascending, counted after the warm-up
  double pct_start = 0.3;                // onecycle: share of its length in which the rate rises
  double div_factor = 25;                // onecycle: the rate begins with lr / div_factor
  double final_div_factor = 1e4;         // onecycle: the rate ends with that / final_div_factor
};

// The learning rate as a pure function of the time: a run that resumes goes on along the same curve, and nothing of it
// is in a checkpoint. The curves are those of torch.optim.lr_scheduler; a warm-up is its LinearLR, and what follows it
// begins at its own time 0, as in SequentialLR. Beyond its length a curve keeps its last value.
// Copies are independent; const calls may come from any thread.
class LrSchedule {
 public:
  // Throws Errc::usage for an unknown name. REQUIRES: options within the bounds of the keys of [optim], and
  // warmup < length where the curve has a length.
  explicit LrSchedule(LrScheduleOptions options);

  // Returns the rate at a time. At time 0 the first step is taken, or the first epoch begins.
  double at(std::int64_t time) const;

  // For plateau: sets the rate after a reduction, which evaluations decide; its curve is constant.
  void set_lr(double lr) { options_.lr = lr; }

  // Returns whether a curve ends at its length, which then has to be given.
  static bool has_length(std::string_view name);
  static std::vector<std::string> names();

 private:
  using Curve = double (*)(const LrScheduleOptions& options, std::int64_t time);

  LrScheduleOptions options_;
  Curve curve_;  // a function of the time after the warm-up
};

}  // namespace ddprun::optim
