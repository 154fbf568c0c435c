#include "tests/unit/launcher/agent_fixtures.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("the workers of a node run on in a round with other nodes, and keep their names") {
  AskingFixture f;
  const auto actions = f.changed({"a", "c", "b"}, 2, {1});
  CHECK(names(actions) == "go on as 2 of 3: 0.0 1.0 2.1 3.1 2.0 3.0");
  CHECK_THAT(announced(actions), Catch::Contains("node c was lost: generation 4 goes on with 3 nodes and 6 workers"));
  CHECK(names(f.replaced({5}, 1)) == "replace 1 in 2: 0.0 1.0 2.1 3.1 2.0 5.2");
  CHECK(names(f.changed({"a", "b"}, 1)) == "go on as 1 of 2: 0.0 1.0 2.0 5.2");
  CHECK(f.killed(3) == "failure 4 of rank 3, others run");
}

TEST_CASE("the workers of a node run on in a round whose store is elsewhere, and the agent says where") {
  AskingFixture f;
  f.store = "10.0.0.2";
  const auto actions = f.changed({"b"}, 0);
  CHECK(names(actions) == "go on as 0 of 1: 2.0 3.0");
  CHECK_THAT(announced(actions), Catch::Contains("the workers' store of generation 4 is at 10.0.0.2:0, no longer at "));
}

TEST_CASE("a node whose workers are done refuses to serve the store of the others") {
  AskingFixture f;
  f.state.on_workers_succeeded();
  CHECK(names(f.changed({"a", "b"}, 1)).empty());
  f.store = "10.0.0.2";
  CHECK(names(f.changed({"b"}, 0)) == "answer 4: 'the workers of the node that would serve the store are done'");
}

TEST_CASE("a node that joins a round that runs starts its workers once those of earlier rounds have ended") {
  AskingFixture f;
  CHECK(names(f.state.on(ContactBroken{"lost"})) == "stop 15");
  CHECK(names(f.changed({"a", "c", "b"}, 2, {2})).empty());
  CHECK(names(f.changed({"a", "b"}, 1)).empty());
  const auto actions = f.state.on_workers_stopped();
  CHECK(names(actions) == "prepare 4; start 4; go on as 1 of 2: 0.0 1.0 4.1 5.1");
  CHECK_FALSE(std::get<PrepareRound>(actions.at(1)).serves_store);
  CHECK(std::get<StartWorkers>(actions.at(2)).round.group_generation == 1);
  CHECK_THAT(announced(actions), Catch::Contains("this node joins generation 4, which runs, as node 2 of 3"));
  CHECK(f.killed(3) == "failure 4 of rank 3, others run");
}

TEST_CASE("a node without workers joins a round that runs at once, unless another round is proposed") {
  AskingFixture f;
  f.state.on(ContactBroken{"lost"});
  CHECK(names(f.state.on_workers_stopped()).empty());
  CHECK(names(f.changed({"a", "b"}, 1, {1})) == "prepare 4; start 4");
  f.state.on(ContactBroken{"lost"});
  f.changed({"a", "b"}, 1, {1});
  f.state.on(RoundProposed{round_of(5), "why"});
  CHECK(names(f.state.on_workers_stopped()) == "prepare 5");
}

TEST_CASE("a node that has lost the workers' store to another one kills the workers that have not joined there") {
  AskingFixture f;
  f.changed({"b"}, 0);
  CHECK(names(f.changed({"c", "b"}, 1, {1})) == "stop 9");
  CHECK(names(f.state.on_workers_stopped()) == "prepare 4; start 4");
}

TEST_CASE("a change of a round that is not this node's changes nothing") {
  AskingFixture f;
  f.state.on(RoundProposed{round_of(5), "why"});
  CHECK(names(f.changed({"a", "b"}, 1)).empty());
}

TEST_CASE("a spare stands by when it is asked, and joins when its node takes the place of another") {
  AgentState state;
  CHECK(names(state.on(RendezvousWaiting{"this node is a spare"})).empty());
  CHECK(names(state.on(StandbyAsked{4, 2})) == "stand by 4: 2");
  state.on(JobEnded{{.success = true}});
  CHECK(names(state.on(StandbyAsked{4, 2})).empty());
}
