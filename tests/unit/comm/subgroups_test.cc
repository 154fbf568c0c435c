#include "worker/comm/subgroups.h"

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::comm;

TEST_CASE("ranks of one colour are ordered by key, then by rank") {
  const std::vector<SplitRequest> requests = {{7, 5}, {std::nullopt, 0}, {7, -1}, {8, 0}, {7, 5}};
  CHECK(ranks_of_colour(requests, 0) == std::vector{2, 0, 4});
  CHECK(ranks_of_colour(requests, 4) == std::vector{2, 0, 4});
  CHECK(ranks_of_colour(requests, 3) == std::vector{3});
  CHECK(ranks_of_colour(requests, 1).empty());
}

TEST_CASE("an invalid list of ranks is refused with the reason") {
  CHECK_NOTHROW(check_ranks({3, 0, 1}, 4));
  CHECK_THROWS_WITH(check_ranks({}, 4), Catch::Contains("at least one"));
  CHECK_THROWS_WITH(check_ranks({0, 4}, 4), Catch::Contains("[0, 4] of 4") && Catch::Contains("no rank 4"));
  CHECK_THROWS_WITH(check_ranks({-1}, 4), Catch::Contains("no rank -1"));
  CHECK_THROWS_WITH(check_ranks({2, 1, 2}, 4), Catch::Contains("rank 2 is named twice"));
}
