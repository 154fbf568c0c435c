#include "ddprun/worker/profiler/slow_rank.h"

#include "tests/support/catch.h"

using namespace ddprun::profiler;

namespace {

constexpr int steps = 20;

// Of 20 steps, from milliseconds of one.
StepTimes times(double data, double forward, double backward, double optimizer, double start = 0, double wait = 0) {
  const auto all = [](double ms) { return Seconds(ms * steps / 1000); };
  return {.data = all(data),
          .forward = all(forward),
          .backward = all(backward),
          .optimizer = all(optimizer),
          .start = all(start),
          .wait = all(wait)};
}

std::string part_of(const StepTimes& slow) {
  const auto normal = times(1, 10, 20, 3);
  const auto found = find_slow_rank({normal, slow, normal, normal}, steps);
  return found ? std::to_string(found->rank) + " " + found->part : "none";
}

}  // namespace

TEST_CASE("a rank that takes more than 20 % longer is named with what it spends its time on") {
  CHECK(part_of(times(9, 10, 20, 3)) == "1 data");
  CHECK(part_of(times(1, 20, 22, 3)) == "1 forward");
  CHECK(part_of(times(1, 11, 30, 3)) == "1 backward");
  CHECK(part_of(times(1, 10, 20, 13)) == "1 optimizer");
  CHECK(part_of(times(1, 10, 20, 3, 9)) == "1 communication");
  auto uploads = times(1, 10, 20, 3);
  uploads.upload = Seconds(0.009 * steps);
  CHECK(part_of(uploads) == "1 upload");
}

TEST_CASE("ranks that differ by 20 % or less, or by waiting for one another, are not slow") {
  CHECK(part_of(times(7.7, 10, 20, 3)) == "none");
  CHECK(part_of(times(7.9, 10, 20, 3)) == "1 data");
  CHECK(part_of(times(1, 10, 20, 3, 0, 100)) == "none");
  CHECK_FALSE(find_slow_rank({times(9, 10, 20, 3)}, steps));
}

TEST_CASE("steps so short that a millisecond is 20 % of them make no rank slow") {
  CHECK_FALSE(find_slow_rank({times(0, 0.2, 0, 0), times(0, 1.1, 0, 0)}, steps));
  CHECK(find_slow_rank({times(0, 0.2, 0, 0), times(0, 1.3, 0, 0)}, steps));
}

TEST_CASE("the line about a slow rank compares a step of it with one of the others") {
  const auto found = find_slow_rank({times(1, 10, 20, 3), times(31, 10, 20, 3)}, steps);
  REQUIRE(found);
  CHECK(
      slow_rank_line(*found, "b") ==
      "rank 1 on host b is slower than the others: 64.0 ms a step, theirs 34.0 ms; data takes 31.0 ms, theirs 1.0 ms");
}

TEST_CASE("a slow rank is named once for each part") {
  const auto normal = times(1, 10, 20, 3);
  SlowRankWatch watch;
  CHECK_FALSE(watch.observe({normal, normal}, steps));
  CHECK(watch.observe({normal, times(20, 10, 20, 3)}, steps));
  CHECK_FALSE(watch.observe({normal, times(25, 10, 20, 3)}, steps));
  CHECK(watch.observe({normal, times(1, 30, 20, 3)}, steps));
  CHECK(watch.observe({times(20, 10, 20, 3), normal}, steps));
}
