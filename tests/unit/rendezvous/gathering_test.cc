#include "rendezvous/succession/gathering.h"

#include <utility>

#include "rendezvous/membership/served_job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

constexpr Gathering::Time start{};
constexpr GatherBounds bounds{.any = 300ms, .living = 750ms};

// Returns an electorate of five nodes. Node a has had the server before.
Electorate five_nodes() {
  Electorate electorate;
  electorate.adopt({.version = {0, 1}, .nodes = {"a", "b", "c", "d", "e"}}, {});
  electorate.confirm({0, 1});
  return electorate;
}

// A server to which b, c and d have come.
Gathering begun() {
  Gathering gathering(bounds);
  for (const auto* node : {"b", "c", "d"}) gathering.came(node);
  return gathering;
}

}  // namespace

TEST_CASE("an elected server decides at once when nobody is missing that has not ended") {
  auto gathering = begun();
  gathering.ended("a");
  CHECK_FALSE(gathering.is_complete(start, five_nodes()));
  SECTION("the last one comes") {
    gathering.came("e");
    CHECK(gathering.is_complete(start, five_nodes()));
  }
  SECTION("the last one ends") {
    gathering.heard("e");
    gathering.ended("e");
    CHECK(gathering.is_complete(start, five_nodes()));
  }
}

TEST_CASE("an elected server waits longer for nodes that live than for those of which nothing is known") {
  auto gathering = begun();
  CHECK_FALSE(gathering.due());
  CHECK_FALSE(gathering.is_complete(start, five_nodes()));
  CHECK(gathering.due() == start + 300ms);
  SECTION("nothing is known") {
    CHECK(gathering.is_complete(start + 300ms, five_nodes()));
  }
  SECTION("one has sent a message") {
    CHECK(gathering.heard("e"));
    CHECK_FALSE(gathering.heard("e"));
    CHECK_FALSE(gathering.is_complete(start + 749ms, five_nodes()));
    CHECK(gathering.due() == start + 750ms);
    CHECK(gathering.is_complete(start + 750ms, five_nodes()));
  }
  SECTION("one was here") {
    gathering.gone("d");
    CHECK_FALSE(gathering.is_complete(start + 749ms, five_nodes()));
    CHECK(gathering.is_complete(start + 750ms, five_nodes()));
  }
}

TEST_CASE("the longest gathering leaves an elected server most of its lease") {
  const auto bounds_of = [](std::chrono::milliseconds interval, int attempts) {
    const auto found = gather_bounds({.keep_alive_interval = interval, .keep_alive_max_attempt = attempts}, {});
    return std::pair(found.any / 1ms, found.living / 1ms);
  };
  CHECK(bounds_of(1s, 5) == std::pair(300L, 750L));
  CHECK(bounds_of(1s, 3) == std::pair(250L, 250L));
  CHECK(bounds_of(1s, 2) == std::pair(250L, 250L));
  CHECK(bounds_of(400ms, 1) == std::pair(100L, 100L));
  CHECK(bounds_of(10s, 5) == std::pair(300L, 1200L));
}
