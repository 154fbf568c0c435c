#include <csignal>

#include "tests/unit/launcher/agent_fixtures.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

// This agent knows that all workers of its round can recover.
struct KeepingFixture : AskingFixture {
  KeepingFixture() { state.on(WorkersRecoverable{4, true}); }
  AgentActions broken(int seconds = 5) {
    return state.on(ContactBroken{.text = "gone", .lease = std::chrono::seconds(seconds)});
  }
  AgentActions resumed(std::int64_t generation = 4) { return state.on(RoundResumed{generation}); }
};

}  // namespace

TEST_CASE("the workers of a single node run on without a rendezvous only if its server has said that it ends") {
  AskingFixture f;
  f.state.on(WorkersRecoverable{4, true});
  const ContactBroken broken{.text = "lost", .lease = std::chrono::seconds(5)};
  CHECK(f.state.trains_on(broken));
  f.changed({"b"}, 0);
  CHECK_FALSE(f.state.trains_on(broken));
  const ContactBroken ended{.text = "it shuts down", .lease = std::chrono::seconds(5), .server_ended = true};
  CHECK(f.state.trains_on(ended));
}

TEST_CASE("workers that can recover run on while the server is away, and the round goes on when it is back") {
  KeepingFixture f;
  const auto kept = f.broken();
  CHECK(names(kept) == "keep");
  CHECK_THAT(announced(kept), Catch::Contains("gone; the workers of generation 4 train on for at most 5.0 s without"));
  CHECK(names(f.broken(1)) == "keep");  // it was back for a moment
  const auto back = f.resumed();
  CHECK(names(back).empty());
  CHECK_THAT(announced(back), Catch::Contains("generation 4 goes on, with the same workers"));
  CHECK(announced(f.resumed()).empty());
  CHECK(f.killed(2) == "failure 4 of rank 2, others run");
}

TEST_CASE("workers run on for no longer than the lease") {
  KeepingFixture f;
  f.broken();
  CHECK(names(f.broken(0)) == "stop 15");
  CHECK(announced(f.resumed()).empty());
  CHECK(names(f.state.on_workers_stopped()).empty());
  CHECK(names(f.broken()).empty());  // nothing runs that could be kept
}

TEST_CASE("workers are stopped at once when the server is lost and they cannot run on") {
  SECTION("they cannot recover") {
    AskingFixture f;
    CHECK(names(f.state.on(ContactBroken{"gone", std::chrono::seconds(5)})) == "stop 15");
  }
  SECTION("they can recover no more") {
    KeepingFixture f;
    f.state.on(WorkersRecoverable{4, false});
    CHECK(names(f.broken()) == "stop 15");
  }
  SECTION("those of an earlier round could recover") {
    KeepingFixture f;
    f.state.on(RoundProposed{round_of(5), "why"});
    f.state.on_workers_stopped();
    f.state.on(RoundStarted{round_of(5)});
    CHECK(names(f.broken()) == "stop 15");
  }
  SECTION("another round was proposed") {
    KeepingFixture f;
    f.state.on(RoundProposed{round_of(5), "why"});
    CHECK(names(f.broken()).empty());  // they are stopping
  }
}

TEST_CASE("what happens to the workers while the server is away is reported when the round goes on") {
  KeepingFixture f;
  f.broken();
  SECTION("a failure") {
    CHECK(f.killed(2).empty());
    CHECK(names(f.resumed()) == "failure 4 of rank 2, others run");
    CHECK(names(f.replaced({2}, 1)) == "replace 0 in 1: 0.0 1.0 2.1 3.0");
    f.broken();
    CHECK(names(f.resumed()).empty());  // it was decided on
  }
  SECTION("a success") {
    CHECK(names(f.state.on_workers_succeeded()) == "keep, done");
    CHECK(names(f.broken(1)) == "keep, done");
    CHECK(names(f.resumed()) == "success 4");
  }
  SECTION("a failure after which the node stops its workers: the round does not go on") {
    CHECK(f.killed(2, {{.running = true}, {}}) == "stop 15; give up");
    CHECK(names(f.resumed()).empty());
  }
  SECTION("nothing of it once another round is proposed") {
    f.killed(2);
    CHECK(names(f.state.on(RoundProposed{round_of(5), "why"})) == "stop 15");
    CHECK(names(f.resumed()).empty());
  }
}

TEST_CASE("what was reported to a server that is lost, and not decided on, is reported again to the next one") {
  KeepingFixture f;
  SECTION("a failure") {
    f.killed(2);
    f.broken();
    CHECK(names(f.resumed()) == "failure 4 of rank 2, others run");
  }
  SECTION("a success") {
    f.state.on_workers_succeeded();
    CHECK(names(f.broken()) == "keep, done");
    CHECK(names(f.resumed()) == "success 4");
  }
}

TEST_CASE("workers that have been kept stop when the server has no use for their round, and for a signal") {
  KeepingFixture f;
  f.broken();
  SECTION("another round runs there") {
    CHECK(names(f.state.on(ReplacementRefused{4})) == "stop 15");
    CHECK(names(f.resumed()).empty());
  }
  SECTION("another round is proposed") {
    CHECK(names(f.state.on(RoundProposed{round_of(5), "why"})) == "stop 15");
    CHECK(names(f.state.on_workers_stopped()) == "prepare 5");
  }
  SECTION("a signal") {
    CHECK(names(f.state.on_signal(SIGTERM)) == "leave; stop 15");
  }
  SECTION("the server is lost for good") {
    CHECK(names(f.state.on(ContactLost{Error(Errc::connection_lost, "gone for good")})) == "stop 15");
  }
}
