#include "worker/trainer/session/rank_times.h"

#include "tests/support/catch.h"

using namespace ddprun::trainer;

TEST_CASE("the times of a window travel in slots of a sum, without those of the first step") {
  RankTimes first(0, 2);
  RankTimes second(1, 2);
  const auto own = [](int rank, int step) {
    return StepTimes{.data = ddprun::profiler::Seconds(step == 0 ? 1000 : rank + 1),
                     .wait = ddprun::profiler::Seconds(0.5)};
  };
  for (int step = 0; step <= RankTimes::window; ++step) {
    std::vector<double> addends{7};
    first.append_to(addends);
    CHECK(addends.size() == 1);
    CHECK(first.take_from(addends).empty());
    first.step_done(own(0, step));
    second.step_done(own(1, step));
  }
  std::vector<double> a{3};
  std::vector<double> b{4};
  first.append_to(a);
  second.append_to(b);
  REQUIRE(a.size() == b.size());
  std::vector<double> sums;
  for (std::size_t i = 0; i < a.size(); ++i) sums.push_back(a[i] + b[i]);
  CHECK(sums[0] == 7);
  const auto ranks = second.take_from(sums);
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].data.count() == RankTimes::window);
  CHECK(ranks[1].data.count() == 2 * RankTimes::window);
  CHECK(ranks[1].wait.count() == RankTimes::window / 2.0);
  CHECK(second.take_from(sums).empty());
  RankTimes alone(0, 1);
  std::vector<double> nothing{1};
  for (int step = 0; step < 3 * RankTimes::window; ++step) alone.step_done(own(0, step));
  alone.append_to(nothing);
  CHECK(nothing.size() == 1);
}

TEST_CASE("a window that begins anew has none of the steps before, and not the next one") {
  RankTimes times(0, 2);
  const auto steps = [&](int count, double seconds) {
    for (int step = 0; step < count; ++step) times.step_done({.data = ddprun::profiler::Seconds(seconds)});
  };
  steps(1 + RankTimes::window / 2, 100);
  times.restart();
  steps(1, 100);
  steps(RankTimes::window - 1, 1);
  std::vector<double> sums{0};
  times.append_to(sums);
  CHECK(sums.size() == 1);
  steps(1, 1);
  times.append_to(sums);
  CHECK(times.take_from(sums)[0].data.count() == RankTimes::window);
}
