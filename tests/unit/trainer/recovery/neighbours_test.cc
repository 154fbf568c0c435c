#include "worker/trainer/recovery/neighbours.h"

#include "tests/support/catch.h"

using namespace ddprun::trainer;

namespace {

using Hosts = std::vector<std::string>;

// Returns by rank who keeps its copy, once it is sure that both ends agree.
std::vector<int> keepers(const Hosts& hosts) {
  std::vector<int> all;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) all.push_back(neighbours_of(rank, hosts).keeper);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    CHECK(neighbours_of(all[rank], hosts).kept == static_cast<int>(rank));
  return all;
}

}  // namespace

TEST_CASE("on one host the next rank keeps a copy") {
  CHECK(keepers(Hosts(4, "a")) == std::vector{1, 2, 3, 0});
  CHECK(keepers(Hosts(2, "a")) == std::vector{1, 0});
}

TEST_CASE("on several hosts a rank of another host keeps it, where each has one") {
  CHECK(keepers({"a", "a", "b", "b"}) == std::vector{2, 3, 0, 1});
  CHECK(keepers({"a", "b", "a", "b"}) == std::vector{1, 2, 3, 0});
  CHECK(keepers({"a", "a", "b", "b", "c", "c"}) == std::vector{2, 3, 4, 5, 0, 1});
}

TEST_CASE("ranks that leave give their parts in turn to those that stay, each part once, unless another has it") {
  CHECK(heirs_of({0, 1, 2, 3}, {true, false, true, true}) == std::vector{-1, 0, -1, -1});
  CHECK(heirs_of({0, 1, 2, 3}, {true, false, false, false}) == std::vector{-1, 0, 0, 0});
  CHECK(heirs_of({0, 1, 2, 3, 4}, {true, false, true, false, false}) == std::vector{-1, 0, -1, 2, 0});
  CHECK(heirs_of({0, 1, 0, 1}, {true, true, false, false}) == std::vector{-1, -1, -1, -1});
  CHECK(heirs_of({0, 1, 0, 1}, {true, false, true, false}) == std::vector{-1, 0, -1, -1});
  CHECK(heirs_of({0, 1}, {true, true}) == std::vector{-1, -1});
  CHECK(heirs_of({0, 1}, {false, false}) == std::vector{-1, -1});
}

TEST_CASE("where a host has more than half of the ranks, as many as possible have a keeper on another one") {
  const Hosts hosts{"a", "a", "a", "b"};
  const auto all = keepers(hosts);
  int elsewhere = 0;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    elsewhere += hosts[rank] == hosts[static_cast<std::size_t>(all[rank])] ? 0 : 1;
  CHECK(elsewhere == 2);
}
