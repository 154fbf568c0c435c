#include "worker/trainer/session/run_length.h"

#include "tests/support/catch.h"

using ddprun::trainer::RunLength;

TEST_CASE("a run's steps follow from its sizes") {
  const RunLength s{.plan = {.size = 8000, .step_samples = 128, .parts = 2}, .epochs = 10};
  CHECK(s.total_steps(0, 0, 0) == 630);
  const RunLength accumulating{.plan = {.size = 8000, .step_samples = 512, .parts = 2}, .epochs = 2};
  CHECK(accumulating.total_steps(0, 0, 0) == 32);  // 15 whole steps and one of 320 samples
}

TEST_CASE("from anywhere in the run the total is the same") {
  const RunLength s{.plan = {.size = 100, .step_samples = 30}, .epochs = 3};
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    for (std::int64_t done = 0; done < 100; done += 30, ++step) CHECK(s.total_steps(step, epoch, done) == 12);
  }
  CHECK(s.total_steps(12, 3, 0) == 12);
}

TEST_CASE("max_steps ends a run early, never before where it stands") {
  RunLength s{.plan = {.size = 100, .step_samples = 10}, .epochs = 3, .max_steps = 7};
  CHECK(s.total_steps(0, 0, 0) == 7);
  CHECK(s.total_steps(9, 0, 90) == 9);
  s.max_steps = 1000;
  CHECK(s.total_steps(0, 0, 0) == 30);
}
