#include "worker/comm/backends/local/dry_group.h"

#include <vector>

#include "worker/comm/collectives.h"
#include "tests/support/catch.h"

using namespace ddprun;

TEST_CASE("a dry group is one rank of any number that agree with it") {
  const auto group = comm::make_dry_group(3, 1000);
  CHECK(group->rank() == 3);
  CHECK(group->size() == 1000);
  std::vector<std::int64_t> own{5, 6};
  allreduce(*group, own);
  CHECK(own == std::vector<std::int64_t>{5, 6});
  std::vector<std::int64_t> all(2000);
  group->allgather(span_of(own), span_of(all), {.blocking = true});
  CHECK(all[0] == 5);
  CHECK(all[1999] == 6);
  std::vector<std::int64_t> parts(1000), part(1);
  parts[3] = 9;
  group->reduce_scatter(span_of(parts), span_of(part), ReduceOp::sum, {.blocking = true});
  CHECK(part[0] == 9);
  // Each rank sends this one what it sends to itself.
  std::vector<std::int64_t> received(1000);
  group->all_to_all(span_of(parts), span_of(received), {.blocking = true});
  CHECK(received == std::vector<std::int64_t>(1000, 9));
  CHECK(all_gather_bytes(*group, "text")[999] == "text");
}

TEST_CASE("a dry group has subgroups, and memory that takes none") {
  const auto group = comm::make_dry_group(6, 8);
  const auto part = group->make_subgroup({4, 6, 7}, "name");
  CHECK(part->rank() == 1);
  CHECK(part->size() == 3);
  const auto memory = group->allocate(std::size_t{1} << 40);
  CHECK(memory.bytes() == std::size_t{1} << 40);
  CHECK(memory.data()[memory.bytes() - 1] == std::byte{0});
}

TEST_CASE("messages and large results of a dry group leave the memory as it is") {
  const auto group = comm::make_dry_group(0, 2);
  std::vector<float> small{1}, large(1 << 20, 1);
  group->recv(span_of(small), 1, 0, {.blocking = true});
  group->send(span_of(small), 1, 0, {.blocking = true});
  CHECK(small[0] == 1);
  const std::vector<float> other(1 << 20, 2);
  group->allreduce(span_of(other), span_of(large), ReduceOp::sum, {.blocking = true});
  CHECK(large[0] == 1);
}

TEST_CASE("a dry group that was aborted fails") {
  const auto group = comm::make_dry_group(0, 2);
  group->abort("the end");
  std::vector<float> value{1};
  CHECK_THROWS_AS(group->allreduce(span_of(value), ReduceOp::sum, {.blocking = true}), Error);
  REQUIRE(group->failure());
  CHECK(group->failure()->code() == Errc::aborted);
}
