#include "rendezvous/membership/rank_assignment.h"

#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("numbers in names compare as numbers") {
  CHECK(natural_compare("node2", "node10") < 0);
  CHECK(natural_compare("node10", "node2") > 0);
  CHECK(natural_compare("rack1-node12", "rack2-node3") < 0);
  CHECK(natural_compare("node", "node1") < 0);
  CHECK(natural_compare("node7", "node7") == 0);
  CHECK(natural_compare("node07", "node7") != 0);
  CHECK(natural_compare("n99999999999999999999998", "n99999999999999999999999") < 0);
}

TEST_CASE("new nodes are ranked in natural order of host, then of arrival") {
  const std::vector<RankCandidate> nodes = {
      {.host = "node10", .arrival = 0}, {.host = "node2", .arrival = 1}, {.host = "node2", .arrival = 2}};
  CHECK(assign_group_ranks(nodes) == std::vector<int>{2, 0, 1});
}

TEST_CASE("survivors keep their ranks and new nodes get the free ones") {
  const std::vector<RankCandidate> nodes = {{.host = "z", .arrival = 0, .previous_rank = 0},
                                            {.host = "a", .arrival = 3},
                                            {.host = "y", .arrival = 2, .previous_rank = 2}};
  CHECK(assign_group_ranks(nodes) == std::vector<int>{0, 1, 2});
}

TEST_CASE("a survivor with a rank beyond the new size gets a free rank before any new node") {
  const std::vector<RankCandidate> nodes = {{.host = "a", .arrival = 5},
                                            {.host = "x", .arrival = 0, .previous_rank = 1},
                                            {.host = "y", .arrival = 1, .previous_rank = 3}};
  CHECK(assign_group_ranks(nodes) == std::vector<int>{2, 1, 0});
}

TEST_CASE("a requested rank is granted if it is free, previous ranks first") {
  const std::vector<RankCandidate> nodes = {{.host = "a", .arrival = 0, .requested_rank = 2},
                                            {.host = "b", .arrival = 1, .previous_rank = 2},
                                            {.host = "c", .arrival = 2, .requested_rank = 0},
                                            {.host = "d", .arrival = 3, .requested_rank = 17}};
  CHECK(assign_group_ranks(nodes) == std::vector<int>{1, 2, 0, 3});
}
