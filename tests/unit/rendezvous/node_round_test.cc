#include "rendezvous/membership/node_round.h"

#include <chrono>

#include "common/error.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace std::chrono_literals;

namespace {

Round round_of_two(std::int64_t generation = 3) {
  return {.generation = generation,
          .restarts_used = 1,
          .self = 1,
          .members = {{.node_id = "a", .host = "host-a", .group_rank = 0, .nproc = 1, .first_rank = 0},
                      {.node_id = "b", .host = "host-b", .group_rank = 1, .nproc = 1, .first_rank = 1}},
          .world_size = 2};
}

const NodeRound::Time start{1000s};

// Node b in a round that runs.
NodeRound running() {
  NodeRound round("b", 5s);
  round.proposed(round_of_two());
  round.ready(4001);
  round.started({.generation = 3, .master_addr = "10.0.0.1", .master_port = 4000});
  return round;
}

// Returns that round after its session was lost, a second after the server's last answer.
NodeRound kept() {
  auto round = running();
  round.session_lost(start + 1s, start);
  round.keep(false);
  return round;
}

}  // namespace

TEST_CASE("a node that has been in no round has none to report or to keep") {
  NodeRound round("b", 5s);
  CHECK_FALSE(round.former());
  CHECK_FALSE(round.keep(false));
  CHECK(round.session_lost(start, start) == 0ms);
}

TEST_CASE("a round that has another node in this node's place breaks the protocol") {
  NodeRound round("c", 5s);
  CHECK_THROWS_AS(round.proposed(round_of_two()), Error);
  CHECK_THROWS_AS(round.changed({.round = round_of_two(), .newcomers = {}, .reason = {}}), Error);
}

TEST_CASE("workers of a round that runs may go on for the rest of their lease") {
  auto round = running();
  CHECK(round.session_lost(start + 2s, start) == 3s);
  CHECK(round.lease_end() == start + 5s);
}

TEST_CASE("workers of a round that has been proposed, or refused to go on, have no lease") {
  auto round = running();
  SECTION("proposed") {
    round.proposed(round_of_two(4));
  }
  SECTION("not replaced") {
    round.not_replaced({3});
  }
  CHECK(round.session_lost(start + 1s, start) == 0ms);
}

TEST_CASE("a round that was kept keeps its lease while attempts to resume it fail") {
  auto round = kept();
  CHECK(round.session_lost(start + 3s, start + 2s) == 2s);
  CHECK_FALSE(round.kept());
}

TEST_CASE("JOIN says all of a round that was kept, and only its rank and number otherwise") {
  auto round = kept();
  auto former = round.former();
  REQUIRE(former);
  CHECK(former->generation == 3);
  CHECK(former->group_rank == 1);
  CHECK(former->restarts_used == 1);
  CHECK(former->nodes == 2);
  CHECK(former->first == "a");
  CHECK(former->master_addr == "10.0.0.1");
  CHECK(former->store_port == 4001);
  CHECK(former->workers.size() == 1);
  round.end();
  former = round.former();
  CHECK(former->generation == 3);
  CHECK(former->nodes == 0);
  CHECK(former->first.empty());
}

TEST_CASE("only a round that was kept is resumed, and has a lease again") {
  auto other = running();
  CHECK_FALSE(other.resumed({.generation = 3}));
  auto round = kept();
  CHECK_FALSE(round.resumed({.generation = 2}));
  CHECK(round.resumed({.generation = 3}));
  CHECK_FALSE(round.kept());
  CHECK(round.session_lost(start + 20s, start + 19s) == 4s);
}

TEST_CASE("a rejoin reports the restarts and the generation of the group that replacements have begun") {
  auto round = running();
  CHECK_FALSE(round.replaced({.generation = 2, .restarts_used = 9, .failures = {}}));
  CHECK(round.replaced({.generation = 3, .restarts_used = 2, .failures = {}, .group_generation = 1}));
  round.session_lost(start, start);
  round.keep(false);
  CHECK(round.former()->restarts_used == 2);
  CHECK(round.former()->group_generation == 1);
}

TEST_CASE("a newcomer to a round that runs has not named the port of a store for it yet") {
  auto round = running();
  RoundChanged change{.round = round_of_two(), .newcomers = {}, .reason = {}};
  SECTION("it stays") {}
  SECTION("it joins") {
    change.newcomers = {1};
  }
  round.changed(change);
  round.session_lost(start, start);
  round.keep(true);
  CHECK(round.former()->store_port == (change.newcomers.empty() ? 4001 : 0));
  CHECK(round.former()->done);
}

TEST_CASE("the nodes of a resumed round are an electorate where this node knows all of them") {
  const auto round = running();
  const auto some = round.electorate({.generation = 3, .electorate = {{1, 2}, {"b"}}, .confirmed = {1, 1}});
  REQUIRE(some);
  CHECK(some->members.size() == 1);
  CHECK(some->electorate == ElectorateVersion{1, 2});
  CHECK(some->confirmed == ElectorateVersion{1, 1});
  CHECK_FALSE(round.electorate({.generation = 3, .electorate = {{1, 2}, {"b", "z"}}}));
}
