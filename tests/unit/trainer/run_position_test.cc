#include "worker/trainer/session/run_position.h"

#include "tests/support/catch.h"

using namespace ddprun::trainer;

TEST_CASE("a run goes on to the next epoch behind the last sample of one") {
  TrainConfig config;
  config.train.epochs = 2;
  TrainState state;
  RunPosition position(config, state, {.size = 100, .step_samples = 40});
  CHECK(position.total_steps() == 6);
  CHECK_FALSE(position.advance(1, 40));
  CHECK_FALSE(position.advance(1, 40));
  CHECK(state.run.samples == 80);
  CHECK(position.advance(1, 20));
  CHECK(state.run.step == 3);
  CHECK(state.run.epoch == 1);
  CHECK(state.run.samples == 0);
  CHECK(position.total_steps() == 6);
}

TEST_CASE("a run that resumes behind the end of a data set goes on with the next epoch") {
  const TrainConfig config;
  TrainState state;
  state.run.samples = 100;
  RunPosition position(config, state, {.size = 80, .step_samples = 40});
  CHECK(position.leave_complete_epoch());
  CHECK(state.run.epoch == 1);
  CHECK(state.run.samples == 0);
  CHECK_FALSE(position.leave_complete_epoch());
}

TEST_CASE("the learning rate is that of a step, or of the epoch, in the schedule's unit") {
  TrainConfig config;
  config.optim.lr = 1;
  config.optim.lr_schedule.name = "step";
  config.optim.lr_schedule.gamma = 0.5;
  TrainState state;
  state.run.epoch = 1;
  RunPosition in_steps(config, state, {.size = 100, .step_samples = 40});
  CHECK(in_steps.learning_rate(0) == 1);
  CHECK(in_steps.learning_rate(2) == 0.25);
  config.optim.schedule_unit = "epochs";
  RunPosition in_epochs(config, state, {.size = 100, .step_samples = 40});
  CHECK(in_epochs.learning_rate(2) == 0.5);
}
