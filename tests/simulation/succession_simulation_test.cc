// The election of rendezvous servers under virtual time. A broken promise is printed with its seed.
#include "tests/simulation/succession_schedule.h"
#include "tests/support/catch.h"

using namespace ddprun::testing;

namespace {

struct Reach {
  int elections = 0, deposed = 0, given_up = 0, decisions = 0, confirmed = 0, outside = 0, fresh = 0, ended = 0;
};

Reach sweep(std::uint64_t first, std::uint64_t last, bool ties = false) {
  Reach reach;
  for (auto seed = first; seed <= last; ++seed) {
    const int nodes = 2 + static_cast<int>(seed % 6);
    const auto outcome = run_succession_schedule({.seed = seed, .nodes = nodes, .ties = ties});
    CAPTURE(seed, nodes, outcome.broken);
    REQUIRE(outcome.broken.empty());
    reach.elections += outcome.elections;
    reach.deposed += outcome.deposed;
    reach.given_up += outcome.given_up;
    reach.decisions += outcome.decisions;
    reach.confirmed += outcome.confirmed;
    reach.outside += outcome.outside;
    reach.fresh += outcome.fresh;
    reach.ended += outcome.ended;
  }
  return reach;
}

}  // namespace

TEST_CASE("elections in 2,000 schedules: one server decides at a time, and knows what was decided before") {
  const auto reach = sweep(1, 2000);
  CHECK(reach.elections > 2000);
  CHECK(reach.deposed > 1000);
  CHECK(reach.given_up > 2000);
  CHECK(reach.decisions > 10'000);
  CHECK(reach.confirmed > 10'000);
  CHECK(reach.outside > 1000);
  CHECK(reach.fresh > 50);
}

TEST_CASE("in 2,000 schedules in which one of two nodes survives the other, one server decides at a time") {
  const auto reach = sweep(1, 2000, true);
  CHECK(reach.elections > 500);
  CHECK(reach.outside > 500);
}

TEST_CASE("the same in 100,000 schedules", "[.nightly]") {
  CHECK(sweep(100'001, 180'000).elections > 80'000);
  CHECK(sweep(180'001, 200'000, true).elections > 5000);
}
