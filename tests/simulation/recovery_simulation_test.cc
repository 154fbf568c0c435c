// Recovery without a restart under virtual time. A broken promise is printed with its seed.
#include "tests/simulation/recovery_schedule.h"
#include "tests/support/catch.h"

using namespace ddprun::testing;

namespace {

struct Reach {
  int recoveries = 0, copies = 0, double_deaths = 0, while_forming = 0, while_copying = 0, gave_up = 0, restarted = 0,
      ended = 0;
};

Reach sweep(std::uint64_t first, std::uint64_t last, int most_ranks) {
  Reach reach;
  for (auto seed = first; seed <= last; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % static_cast<std::uint64_t>(most_ranks));
    const int restarts = seed % 4 == 0 ? 2 : 6;
    const auto outcome = run_recovery_schedule({.seed = seed, .ranks = ranks, .restarts = restarts});
    CAPTURE(seed, ranks, outcome.broken);
    REQUIRE(outcome.broken.empty());
    reach.recoveries += outcome.recoveries;
    reach.copies += outcome.copies;
    reach.double_deaths += outcome.double_deaths;
    reach.while_forming += outcome.deaths_while_forming;
    reach.while_copying += outcome.deaths_while_copying;
    ++(outcome.gave_up ? reach.gave_up : outcome.restarted ? reach.restarted : reach.ended);
  }
  return reach;
}

}  // namespace

TEST_CASE("recovery in 4,000 schedules: each step is applied once, and all ranks have the same state") {
  const auto reach = sweep(1, 4000, 8);
  CHECK(reach.recoveries > 1000);
  CHECK(reach.copies > 1000);
  CHECK(reach.double_deaths > 1000);
  CHECK(reach.while_forming > 1000);
  CHECK(reach.while_copying > 100);
  CHECK(reach.ended > 1000);
  CHECK(reach.gave_up > 10);     // all ranks that had the state died
  CHECK(reach.restarted > 100);  // no restart was left, or no rank
}

TEST_CASE("a rank that joins and leaves in order in 4,000 schedules with deaths: no step is lost or made twice") {
  int changes = 0, left = 0, ended = 0, deaths = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 6);
    const auto outcome =
        run_recovery_schedule({.seed = seed, .ranks = ranks, .deaths = static_cast<int>(seed % 4), .changes = 5});
    CAPTURE(seed, ranks, outcome.broken);
    REQUIRE(outcome.broken.empty());
    changes += outcome.changes;
    left += outcome.left;
    deaths += outcome.deaths;
    if (!outcome.gave_up) ++ended;
  }
  CHECK(changes > 1000);
  CHECK(left > 1000);
  CHECK(deaths > 1000);
  CHECK(ended > 3000);
}

TEST_CASE("recovery of a state in parts in 4,000 schedules: its parts come from replicas, or all return to copies") {
  int from_replicas = 0, from_copies = 0, from_start = 0, ended = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    const int ranks = 2 * (1 + static_cast<int>(seed % 4));
    const int parts = seed % 3 == 0 && ranks > 2 ? ranks / 2 : ranks;
    const auto outcome = run_recovery_schedule({.seed = seed, .ranks = ranks, .restarts = 6, .parts = parts});
    CAPTURE(seed, ranks, parts, outcome.broken);
    REQUIRE(outcome.broken.empty());
    from_replicas += outcome.from_replicas;
    from_copies += outcome.from_copies;
    from_start += outcome.from_start;
    if (!outcome.gave_up && !outcome.restarted) ++ended;
  }
  CHECK(from_replicas > 100);
  CHECK(from_copies > 1000);
  CHECK(from_start > 100);
  CHECK(ended > 1000);
}

TEST_CASE("ranks that freeze, return or are cut off in 4,000 schedules: they are ended, and no step is made twice") {
  int freezes = 0, lost = 0, returned = 0, ended = 0, jobs = 0;
  for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
    const int ranks = 1 + static_cast<int>(seed % 8);
    const int parts = seed % 3 == 0 && ranks % 2 == 0 ? ranks : 1;
    const auto outcome = run_recovery_schedule(
        {.seed = seed, .ranks = ranks, .deaths = 3, .restarts = 10, .parts = parts, .freezes = 3, .cuts = 2});
    CAPTURE(seed, ranks, parts, outcome.broken);
    REQUIRE(outcome.broken.empty());
    freezes += outcome.freezes;
    lost += outcome.lost;
    returned += outcome.returned;
    ended += outcome.ended;
    if (!outcome.gave_up && !outcome.restarted) ++jobs;
  }
  CHECK(freezes > 4000);
  CHECK(lost > 4000);
  CHECK(returned > 1000);
  CHECK(ended > 4000);
  CHECK(jobs > 1000);
}

TEST_CASE("the same with up to 64 ranks") {
  const auto reach = sweep(10'001, 10'100, 64);
  CHECK(reach.ended > 50);
}

TEST_CASE("recovery in 100,000 schedules", "[.nightly]") {
  CHECK(sweep(100'001, 199'000, 8).ended > 25'000);
  CHECK(sweep(199'001, 200'000, 64).ended > 500);
}
