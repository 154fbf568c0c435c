#include "worker/profiler/slow_rank.h"

#include "tests/support/catch.h"

using namespace ddprun::profiler;

namespace {

constexpr int steps = 20;

// Returns the times of 20 steps, from milliseconds of one.
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

TEST_CASE("a rank whose excess is less than a tenth of a step with its waits is not slow") {
  const auto normal = times(0, 2, 0, 0, 0, 30);
  CHECK_FALSE(find_slow_rank({normal, times(0, 5, 0, 0, 0, 27)}, steps));
  CHECK(find_slow_rank({normal, times(0, 6, 0, 0, 0, 26)}, steps));
}

namespace {

const StepTimes normal = times(1, 10, 20, 3);

// Returns the parts that are named in that many observations of the same times.
std::vector<std::string> named(SlowRankWatch& watch, const std::vector<StepTimes>& ranks, int observations) {
  std::vector<std::string> all;
  for (int i = 0; i < observations; ++i)
    if (const auto found = watch.observe(ranks, steps)) all.push_back(std::to_string(found->rank) + " " + found->part);
  return all;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a slow rank is named once for each part, when it has been slow three times in a row") {
  const StepTimes slow_data = times(20, 10, 20, 3), slow_forward = times(1, 30, 20, 3);
  SlowRankWatch watch;
  CHECK(named(watch, {normal, normal}, 5).empty());
  CHECK(named(watch, {normal, slow_data}, 2).empty());
  CHECK(named(watch, {normal, slow_data}, 5) == Names{"1 data"});
  CHECK(named(watch, {normal, slow_forward}, 5) == Names{"1 forward"});
  CHECK(named(watch, {slow_data, normal}, 5) == Names{"0 data"});
}

TEST_CASE("a rank that is slow now and then is not named") {
  const StepTimes slow = times(20, 10, 20, 3);
  SlowRankWatch watch;
  for (int i = 0; i < 10; ++i) {
    CHECK(named(watch, {normal, slow}, 2).empty());
    CHECK(named(watch, i % 2 == 0 ? std::vector{normal, normal} : std::vector{slow, normal}, 2).empty());
  }
}
