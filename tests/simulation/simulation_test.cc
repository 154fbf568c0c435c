// 2,000 jobs under virtual time. A failing seed is printed with the command that replays it.
#include <exception>

#include <fmt/format.h>

#include "tests/simulation/simulated_job.h"
#include "tests/simulation/sweep.h"
#include "tests/support/catch.h"

using namespace ddprun::testing;

namespace {

// The schedules are useful only if they reach all code paths.
void sweep_and_check_reach(std::uint64_t first, std::uint64_t last) {
  const SweepResult result = sweep({.first = first, .last = last});
  INFO(result.text());
  CHECK(result.broken.empty());
  CHECK(result.counts.starts > 500);
  CHECK(result.counts.proposals > result.counts.starts);
  CHECK(result.counts.drops > 100);
  CHECK(result.counts.failures > 100);
  CHECK(result.counts.successes > 100);
  CHECK(result.counts.results - result.counts.successes > 100);
  CHECK(result.counts.rejoins > 100);
  CHECK(result.counts.superseded > 10);
  CHECK(result.counts.replaced > 100);
  CHECK(result.counts.reads > 1000);
  CHECK(result.counts.kept > 20);
  CHECK(result.counts.resumed > 3);
  CHECK(result.counts.lost > 20);
  CHECK(result.counts.gained > 20);
  CHECK(result.counts.moved > 2);
}

}  // namespace

TEST_CASE("under any faults a job keeps its invariants and ends: schedules 1 to 1,000") {
  sweep_and_check_reach(1, 1000);
}

TEST_CASE("under any faults a job keeps its invariants and ends: schedules 1,001 to 2,000") {
  sweep_and_check_reach(1001, 2000);
}

TEST_CASE("a schedule gives the same sequence of events each time") {
  const auto one = sweep({.first = 7, .last = 7}), again = sweep({.first = 7, .last = 7});
  CHECK(one.text() == again.text());
}
