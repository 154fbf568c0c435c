#include <csignal>

#include "tests/unit/launcher/agent_fixtures.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("workers of a node that has left end by themselves where the round goes on") {
  AskingFixture f;
  CHECK(names(f.state.on_leave_request("a trial", Absence::for_a_time)) == "ask to leave: a trial");
  CHECK(names(f.state.on(LeaveAnswered{.refusal = {}, .round_goes_on = true})) == "release");
  CHECK(f.state.away());
  CHECK(names(f.state.on_workers_stopped()).empty());
  AskingFixture ends;
  ends.state.on_leave_request("a trial", Absence::for_good);
  CHECK(names(ends.state.on(LeaveAnswered{.refusal = {}, .round_goes_on = true})) == "release");
  CHECK(names(ends.state.on_workers_stopped()) == "leave; finish 143");
}

TEST_CASE("a node whose workers take its signal as a request to save the state and stop all ranks passes it to them") {
  AskingFixture f;
  f.state.on(WorkersRecoverable{4, true});
  CHECK(names(f.state.on_signal(SIGTERM, true)) == "leave; stop 15");
}

TEST_CASE("a node that gets a signal asks to leave where the round may go on without it, and ends in any case") {
  AskingFixture f;
  CHECK(names(f.state.on_signal(SIGINT)) == "leave; stop 2");  // its workers have not announced anything
  AskingFixture able;
  able.state.on(WorkersRecoverable{4, true});
  CHECK(names(able.state.on_signal(SIGINT)) == "ask to leave: stopped by SIGINT");
  SECTION("the round goes on") {
    CHECK(names(able.state.on(LeaveAnswered{.refusal = {}, .round_goes_on = true})) == "release");
    CHECK(names(able.state.on_signal(SIGINT)) == "kill");
    CHECK(names(able.state.on_workers_stopped()) == "leave; finish 130");
    return;
  }
  SECTION("another one begins") {
    CHECK(names(able.state.on(LeaveAnswered{})) == "leave; stop 2");
  }
  SECTION("too few nodes are left") {
    CHECK(names(able.state.on(LeaveAnswered{.refusal = "the job has 2 nodes"})) == "leave; stop 2");
  }
  SECTION("another round is proposed meanwhile") {
    CHECK(names(able.state.on(RoundProposed{round_of(5), "why"})) == "leave; stop 2");
  }
  SECTION("the contact breaks meanwhile") {
    CHECK(names(able.state.on(ContactBroken{.text = "lost", .lease = std::chrono::seconds(5)})) == "leave; stop 2");
  }
  SECTION("another signal comes meanwhile") {
    CHECK(names(able.state.on_signal(SIGINT)) == "leave; stop 2; kill");
  }
  CHECK(names(able.state.on_workers_stopped()) == "finish 130");
}

TEST_CASE("a node leaves for a time when the others are enough, and joins again when its workers have stopped") {
  AgentFixture f;
  CHECK(f.asks_to_leave(Absence::for_a_time).empty());
  f.run(0);
  CHECK(f.asks_to_leave(Absence::for_a_time) == "ask to leave: a trial");
  CHECK(f.may_leave("the job of --nnodes=2:3 has 2 nodes").empty());
  CHECK(f.joins().empty());
  CHECK(f.asks_to_leave(Absence::for_a_time) == "ask to leave: a trial");
  CHECK(f.may_leave() == "stop 15");
  CHECK(f.state.away());
  CHECK(f.failed(1).empty());  // the job goes on without it
  CHECK(f.joins().empty());
  CHECK(f.stopped().empty());
  CHECK(f.asks_to_leave(Absence::for_a_time).empty());
  CHECK(f.joins() == "join again");
  CHECK_FALSE(f.state.away());
  f.run(2);
  CHECK(f.succeeded() == "success 2");
}

TEST_CASE("workers that end by themselves while their node leaves are not reported") {
  AgentFixture f;
  f.run(0);
  f.asks_to_leave(Absence::for_a_time);
  f.may_leave();
  CHECK((GENERATE(false, true) ? f.succeeded() : names(f.state.on_workers_preempted())).empty());
  CHECK(f.joins() == "join again");
}

TEST_CASE("a node that leaves for good ends as after a signal") {
  AgentFixture f;
  f.run(0);
  CHECK(f.asks_to_leave(Absence::for_good) == "ask to leave: a trial");
  CHECK(f.may_leave() == "leave; stop 15");
  const bool preempted = GENERATE(false, true);
  CHECK(names(f.state.on_workers_stopped(preempted)) == (preempted ? "finish 75" : "finish 143"));
}

TEST_CASE("a node that is away ends with the job, by a signal, and joins again with a new session") {
  AgentFixture f;
  f.run(0);
  f.asks_to_leave(Absence::for_a_time);
  f.may_leave();
  f.stopped();
  SECTION("with the job") {
    const auto actions = f.state.on(JobEnded{{.success = true}});
    CHECK(names(actions) == "finish 0");
    CHECK(std::get<Finish>(actions.back()).last_line ==
          "this node had left the job: it ends with the job's exit code, 0");
  }
  SECTION("by a signal") {
    CHECK(f.signal(SIGTERM) == "leave; finish 143");
  }
  SECTION("with a new session") {
    CHECK(names(f.state.on(ContactBroken{"lost"})).empty());
    CHECK_FALSE(f.state.away());
    CHECK(f.joins().empty());
    f.run(3);
  }
}
