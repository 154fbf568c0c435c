#include "ddprun/worker/trainer/schedule.h"

#include "tests/support/catch.h"

using ddprun::trainer::Schedule;

TEST_CASE("a run's steps follow from its sizes") {
  const Schedule s{.samples_per_rank = 4000, .batch_size = 64, .epochs = 10};
  CHECK(s.steps_to_epoch_end(0) == 63);
  CHECK(s.total_steps(0, 0, 0) == 630);
  const Schedule accumulating{.samples_per_rank = 4000, .batch_size = 64, .accumulate = 4, .epochs = 2};
  CHECK(accumulating.total_steps(0, 0, 0) == 32);  // 15 whole steps and one of three micro-batches, the last one short
}

TEST_CASE("from anywhere in the run the total is the same") {
  const Schedule s{.samples_per_rank = 100, .batch_size = 30, .epochs = 3};
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t done = 0; done < 100; done += 30, ++step) CHECK(s.total_steps(step, epoch, done) == 12);
  }
  CHECK(s.total_steps(12, 3, 0) == 12);
}

TEST_CASE("max_steps ends a run early, never before where it stands") {
  Schedule s{.samples_per_rank = 100, .batch_size = 10, .epochs = 3, .max_steps = 7};
  CHECK(s.total_steps(0, 0, 0) == 7);
  CHECK(s.total_steps(9, 0, 90) == 9);
  s.max_steps = 1000;
  CHECK(s.total_steps(0, 0, 0) == 30);
}
