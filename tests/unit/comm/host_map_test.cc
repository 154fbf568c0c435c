#include "worker/comm/bootstrap/host_map.h"

#include "common/error.h"
#include "worker/comm/bootstrap/rank_location.h"
#include "tests/support/catch.h"

using ddprun::comm::HostMap;

TEST_CASE("hosts are numbered by their lowest ranks, and ranks within them in their own order") {
  const HostMap map({"b", "a", "b", "c", "a", "b"});
  CHECK(map.ranks() == 6);
  CHECK(map.hosts() == 3);
  CHECK(map.ranks_on(0) == std::vector<int>{0, 2, 5});
  CHECK(map.ranks_on(1) == std::vector<int>{1, 4});
  CHECK(map.ranks_on(2) == std::vector<int>{3});
  CHECK(map.host_of(4) == 1);
  CHECK(map.local_rank_of(4) == 1);
  CHECK(map.smallest_host() == 1);
  CHECK(map.largest_host() == 3);
}

TEST_CASE("even and in order means equally many ranks on each host, with consecutive numbers") {
  CHECK(HostMap({"a", "a", "b", "b"}).even_and_in_order());
  CHECK(HostMap({"a", "a"}).even_and_in_order());
  CHECK_FALSE(HostMap({"a", "b", "a", "b"}).even_and_in_order());
  CHECK_FALSE(HostMap({"a", "a", "b"}).even_and_in_order());
}

TEST_CASE("a rank's location survives encoding") {
  const ddprun::comm::RankLocation location{"a host", "a network", "10.0.0.1", "on host b, whose build has no NCCL"};
  CHECK(ddprun::comm::decode_location(encode(location)) == location);
}

TEST_CASE("a loopback address reaches ranks in one network alone") {
  using namespace ddprun::comm;
  const RankLocations together{{"a", "n", "127.0.0.1"}, {"b", "n", "127.0.0.1"}};
  CHECK(address_for_peers(together, 0) == "127.0.0.1");
  const RankLocations apart{{"a", "n", "127.0.0.1"}, {"b", "m", "127.0.0.1"}};
  CHECK_THROWS_AS(address_for_peers(apart, 0), ddprun::Error);
  const RankLocations known{{"a", "n", "10.0.0.1"}, {"b", "m", "127.0.0.1"}};
  CHECK(address_for_peers(known, 0) == "10.0.0.1");
}
