#pragma once

#include <cstdint>
#include <optional>

#include "worker/data/epoch_plan.h"
#include "worker/optim/lr_schedule.h"
#include "worker/trainer/config/train_config.h"
#include "worker/trainer/state/train_state.h"

namespace ddprun::trainer {

// The position of a run among its steps and epochs, and its learning rate there: every session advances it.
//
// Ownership: config and state outlive this object. Threads: one at a time.
class RunPosition {
 public:
  RunPosition(const TrainConfig& config, TrainState& state, data::EpochPlan plan)
      : config_(config), state_(state), plan_(std::move(plan)) {}

  const data::EpochPlan& plan() const { return plan_; }
  // The steps of the whole run, those before this session included.
  std::int64_t total_steps() const;
  // The rate of the step after so many. From the first call on the run's length is what it was then.
  double learning_rate(std::int64_t step);
  // At a resume an epoch may be complete, if the data set was larger, or the tail that is left out shorter: then this
  // goes on to the next one. Returns whether it did.
  bool leave_complete_epoch();
  // Notes that so many optimizer steps are done, of so many samples. Returns whether they end the epoch.
  bool advance(std::int64_t steps, std::int64_t samples);

 private:
  const TrainConfig& config_;
  TrainState& state_;
  const data::EpochPlan plan_;
  std::optional<optim::LrSchedule> lr_schedule_;  // the run's length is known once it has resumed
};

}  // namespace ddprun::trainer
