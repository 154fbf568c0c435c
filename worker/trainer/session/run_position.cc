#include "worker/trainer/session/run_position.h"

#include "worker/trainer/config/run_settings.h"
#include "worker/trainer/session/run_length.h"

namespace ddprun::trainer {

std::int64_t RunPosition::total_steps() const {
  const RunLength length{.plan = plan_, .epochs = config_.train.epochs, .max_steps = config_.train.max_steps};
  return length.total_steps(state_.run.step, state_.run.epoch, state_.run.samples);
}

double RunPosition::learning_rate(std::int64_t step) {
  const bool in_steps = config_.optim.schedule_unit == "steps";
  if (!lr_schedule_)
    lr_schedule_.emplace(lr_schedule_options(config_.optim, in_steps ? total_steps() : config_.train.epochs));
  if (state_.plateau) lr_schedule_->set_lr(state_.plateau->lr());
  return lr_schedule_->at(in_steps ? step : state_.run.epoch);
}

bool RunPosition::leave_complete_epoch() {
  auto& run = state_.run;
  if (plan_.left(run.samples) > 0) return false;
  ++run.epoch;
  run.samples = 0;
  return true;
}

bool RunPosition::advance(std::int64_t steps, std::int64_t samples) {
  auto& run = state_.run;
  run.step += steps;
  run.samples += samples;
  state_.record_rules();
  return leave_complete_epoch();
}

}  // namespace ddprun::trainer
