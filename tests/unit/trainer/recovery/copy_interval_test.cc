#include "worker/trainer/recovery/copy_interval.h"

#include "tests/support/catch.h"

using ddprun::trainer::CopyInterval;

namespace {

// Returns the number of steps until copies are due.
int steps_until_due(const CopyInterval& interval, int step) {
  int steps = 1;
  while (!interval.is_due(step + steps)) ++steps;
  return steps;
}

}  // namespace

TEST_CASE("copies take at most 2 % of the time of the steps, whatever both take") {
  for (const double copying : {0.0001, 0.003, 0.05}) {
    for (const double step : {0.001, 0.03, 1.0}) {
      CAPTURE(copying, step);
      CopyInterval interval;
      int at = 0;
      interval.copies_kept(at, 10 * copying, 0);
      int steps = steps_until_due(interval, at);
      for (int round = 0; round < 3; ++round) {
        at += steps;
        interval.copies_kept(at, copying, steps * step);
        steps = steps_until_due(interval, at);
      }
      CHECK(copying <= 0.02 * steps * step * 1.0001);
      if (steps > 1) CHECK(copying > 0.02 * (steps - 1) * step * 0.9999);
    }
  }
}

TEST_CASE("one slow copy does not make the next ones rare, and two do") {
  CopyInterval interval;
  interval.copies_kept(0, 0.001, 0);
  interval.copies_kept(10, 0.001, 0.5);
  interval.copies_kept(20, 1, 0.5);
  CHECK(steps_until_due(interval, 20) == 1);
  interval.copies_kept(21, 1, 0.05);
  CHECK(steps_until_due(interval, 21) == 1000);
}

TEST_CASE("the first copies of a session, which have no steps before them, say nothing of the interval") {
  CopyInterval interval;
  interval.copies_kept(500, 30, 0);
  CHECK(steps_until_due(interval, 500) == 10);
}
