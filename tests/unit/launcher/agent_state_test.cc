#include "launcher/agent/agent_state.h"

#include <csignal>
#include <string>

#include "rendezvous/membership/worker_failure.h"
#include "tests/unit/launcher/agent_fixtures.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("group rank 0 serves the workers' store of a round, whichever node that is") {
  auto round = round_of(0);
  round.members.push_back({.node_id = "b", .host = "b", .group_rank = 1, .nproc = 2, .first_rank = 2});
  for (const int self : {0, 1}) {
    round.self = self;
    const auto actions = AgentState().on(RoundProposed{round, "why"});
    REQUIRE(actions.size() == 1);
    CHECK(std::get<PrepareRound>(actions.front()).serves_store == (self == 0));
  }
}

TEST_CASE("a job that succeeds") {
  AgentFixture f;
  f.run(0);
  CHECK(f.succeeded() == "success 0");
  CHECK(f.ended(0) == "finish 0");
  CHECK(f.ended(1).empty());
  CHECK(f.signal(SIGTERM).empty());
}

TEST_CASE("a failure stops the node's workers and is reported, and the job result ends the job after the stop") {
  AgentFixture f;
  f.run(0);
  CHECK(f.failed(1) == "stop 15; failure 0 of rank 1");
  CHECK(f.ended(3).empty());
  CHECK(f.stopped() == "finish 3");
}

TEST_CASE("the job result may arrive after the workers have stopped") {
  AgentFixture f;
  f.run(0);
  f.failed(1);
  CHECK(f.stopped().empty());
  CHECK(f.ended(3) == "finish 3");
}

TEST_CASE("a restart waits until the old workers have stopped") {
  AgentFixture f;
  f.run(0);
  f.failed(1);
  CHECK(f.proposed(1).empty());
  CHECK(f.stopped() == "prepare 1");
  CHECK(f.started(1) == "start 1");
}

TEST_CASE("another node's failure stops this node's workers") {
  AgentFixture f;
  f.run(0);
  CHECK(f.proposed(1) == "stop 15");
  CHECK(f.proposed(2).empty());
  CHECK(f.stopped() == "prepare 2");
  CHECK(f.started(1).empty());
  CHECK(f.started(2) == "start 2");
}

TEST_CASE("a round may be proposed to a node whose workers have already succeeded") {
  AgentFixture f;
  f.run(0);
  f.succeeded();
  CHECK(f.proposed(1) == "prepare 1");
  CHECK(f.started(1) == "start 1");
}

TEST_CASE("the first signal ends gracefully, the second kills, the exit code is 128 + the first") {
  AgentFixture f;
  f.run(0);
  CHECK(f.signal(SIGINT) == "leave; stop 2");
  CHECK(f.signal(SIGTERM) == "kill");
  CHECK(f.ended(0).empty());
  CHECK(f.proposed(1).empty());
  CHECK(f.stopped() == "finish 130");
}

TEST_CASE("a signal while nothing runs ends at once") {
  AgentFixture f;
  f.proposed(0);
  CHECK(f.signal(SIGTERM) == "leave; finish 143");
}

TEST_CASE("if all workers succeed after a signal, the job ends by that signal nevertheless") {
  AgentFixture f;
  f.run(0);
  f.signal(SIGTERM);
  CHECK(f.succeeded() == "finish 143");
}

TEST_CASE("a signal during a stop keeps its grace period, a second one kills, and the job result is the exit code") {
  AgentFixture f;
  f.run(0);
  f.failed(0);
  f.ended(3);
  CHECK(f.signal(SIGTERM).empty());
  CHECK(f.signal(SIGTERM) == "kill");
  CHECK(f.stopped() == "finish 3");
}

TEST_CASE("a signal while workers stop for a new round ends the job, a second one kills") {
  AgentFixture f;
  f.run(0);
  CHECK(f.proposed(1) == "stop 15");
  CHECK(f.signal(SIGINT) == "leave; stop 2");
  CHECK(f.signal(SIGINT) == "kill");
  CHECK(f.stopped() == "finish 130");
}

TEST_CASE("preempted workers are reported when all have exited, and the job result is the exit code") {
  AgentFixture f;
  f.run(0);
  CHECK(names(f.state.on_workers_preempted()) == "preempted 0");
  CHECK(f.ended(75) == "finish 75");
}

TEST_CASE("workers preempted by a requested stop determine the exit code, but not after a failure") {
  AgentFixture signalled;
  signalled.run(0);
  signalled.signal(SIGTERM);
  CHECK(names(signalled.state.on_workers_stopped(true)) == "finish 75");
  AgentFixture asked;
  asked.run(0);
  asked.ended(128 + SIGTERM);
  CHECK(names(asked.state.on_workers_stopped(true)) == "finish 75");
  AgentFixture failed;
  failed.run(0);
  failed.ended(1);
  CHECK(names(failed.state.on_workers_stopped(true)) == "finish 1");
}

TEST_CASE("workers preempted by a membership change start again in the next round") {
  AgentFixture f;
  f.run(0);
  CHECK(f.proposed(1) == "stop 15");
  CHECK(names(f.state.on_workers_stopped(true)) == "prepare 1");
  CHECK(f.started(1) == "start 1");
}

TEST_CASE("a stop request is passed to the rendezvous, and the job result ends the job") {
  AgentFixture f;
  f.run(0);
  CHECK(names(f.state.on_stop_request("root on host a")) == "request stop: root on host a");
  CHECK(f.ended(143) == "stop 15");
  CHECK(names(f.state.on_stop_request("again")).empty());
  CHECK(f.stopped() == "finish 143");
}

TEST_CASE("a failure is announced once, as the job's root cause") {
  const WorkerFailure failure{.rank = 1, .host = "a", .exit_code = 3};
  AgentState state;
  state.on(RoundProposed{round_of(0), "first round"});
  state.on(RoundStarted{round_of(0)});
  CHECK(announced(state.on_workers_failed({failure})).empty());
  SECTION("a job result") {
    CHECK(announced(state.on(JobEnded{{.exit_code = 9, .reason = "rank 7 on host b failed"}})) ==
          "rank 7 on host b failed\n");
  }
  SECTION("a new round for it") {
    CHECK(announced(state.on(RoundProposed{round_of(1), failure_text(failure) + "; restart 1 of 2"})) ==
          "new round: " + failure_text(failure) + "; restart 1 of 2\n");
  }
  SECTION("a new round for another reason") {
    CHECK(announced(state.on(RoundProposed{round_of(1), "node c was lost"})) ==
          failure_text(failure) + "\nnew round: node c was lost\n");
  }
  SECTION("a lost rendezvous, without a job result") {
    CHECK(announced(state.on(ContactLost{Error(Errc::connection_lost, "gone")})) == failure_text(failure) + "\ngone\n");
  }
}

TEST_CASE("a lost rendezvous stops the workers, and its error is the exit code") {
  AgentFixture f;
  f.run(0);
  CHECK(names(f.state.on(ContactLost{Error(Errc::connection_lost, "gone")})) == "stop 15");
  CHECK(f.stopped() == "finish 1");
  AgentFixture refused;
  CHECK(names(refused.state.on(ContactLost{Error(Errc::usage, "differs")})) == "finish 2");
}

TEST_CASE("without the rendezvous no worker runs, and the next proposed round is prepared") {
  AgentFixture f;
  f.run(3);
  CHECK(names(f.state.on(ContactBroken{"gone"})) == "stop 15");
  CHECK(f.stopped().empty());
  CHECK(names(f.state.on(ContactBroken{"gone again"})).empty());
  f.run(5);
  AgentFixture slow;
  slow.run(3);
  slow.state.on(ContactBroken{"gone"});
  CHECK(slow.proposed(5).empty());
  CHECK(slow.stopped() == "prepare 5");
}

TEST_CASE("a round that was proposed before the rendezvous was lost is not started") {
  AgentFixture f;
  f.proposed(3);
  CHECK(names(f.state.on(ContactBroken{"gone"})).empty());
  CHECK(f.started(3).empty());
  CHECK(names(f.state.on(ContactLost{Error(Errc::connection_lost, "gone for good")})) == "finish 1");
}

TEST_CASE("an agent with an error notifies the other nodes before it ends") {
  AgentFixture f;
  f.proposed(0);
  CHECK(names(f.state.on_fault(Error(Errc::io, "no descriptors"))) == "leave; finish 1");
  AgentFixture running;
  running.run(0);
  CHECK(names(running.state.on_fault(Error(Errc::io, "no descriptors"))) == "leave; stop 15");
  CHECK(running.stopped() == "finish 1");
}

TEST_CASE("a failure while the job is ending is not reported") {
  AgentFixture f;
  f.run(0);
  f.ended(5);
  CHECK(f.failed(1) == "stop 15");
  CHECK(f.stopped() == "finish 5");
}

TEST_CASE("a changed address of the workers' store is announced") {
  AgentState state;
  Round round = round_of(0);
  round.master_addr = "10.0.0.1";
  round.master_port = 4000;
  state.on(RoundProposed{round, "first round"});
  CHECK(announced(state.on(RoundStarted{round})).empty());
  state.on_workers_succeeded();
  round.generation = 1;
  round.master_addr = "10.0.0.2";
  state.on(RoundProposed{round, "node a left"});
  CHECK(announced(state.on(RoundStarted{round})) ==
        "the workers' store of generation 1 is at 10.0.0.2:4000, no longer at 10.0.0.1:4000\n");
}

TEST_CASE("losses, waits and the reasons of new rounds are announced") {
  AgentState state;
  CHECK(announced(state.on(RendezvousWaiting{"waiting for 1 node"})) == "waiting for 1 node\n");
  CHECK(announced(state.on(RoundProposed{round_of(0), "first round"})).empty());
  CHECK(announced(state.on(RoundProposed{round_of(1), "node c joined"})) == "new round: node c joined\n");
  CHECK(announced(state.on(JobEnded{{.exit_code = 1, .reason = "node b is lost"}})) == "node b is lost\n");
}

TEST_CASE("a node that took part in no round says so after the result, and has the job's exit code") {
  const auto last_line = [](AgentState& state, const JobResult& result) {
    const auto actions = state.on(JobEnded{result});
    const auto& finish = std::get<Finish>(actions.back());
    CHECK(finish.exit_code == result.exit_code);
    return finish.last_line;
  };
  const JobResult success{.success = true, .reason = "all ended with 0"};
  const JobResult failure{.exit_code = 7, .reason = "rank 0 failed", .failures = {{.exit_code = 7}}};
  for (const auto& result : {success, failure}) {
    AgentState spare;
    spare.on(RendezvousWaiting{"this node is a spare"});
    CHECK_THAT(last_line(spare, result), Catch::Contains("was a spare: none of its workers was started"));
    AgentFixture member;
    member.run(0);
    member.succeeded();
    CHECK(last_line(member.state, result).empty());
  }
  AgentState alone;
  CHECK(last_line(alone, {.exit_code = 1, .reason = "only 1 of 2 nodes are here"}).empty());
}

TEST_CASE("a round whose nodes run different commands leads to one line, once for each difference") {
  AgentState state({"train.py", "--lr=0.1"});
  auto round = round_of(0);
  round.members.push_back({.node_id = "b", .host = "b", .group_rank = 1, .nproc = 2, .first_rank = 2});
  const auto start = [&](std::int64_t generation, const std::string& argument) {
    round.generation = generation;
    round.commands = {.first = {"train.py", "--lr=0.1"}, .other = 1, .others = {"train.py", argument}, .count = 1};
    state.on(RoundProposed{round, "why"});
    state.on_workers_stopped();
    return announced(state.on(RoundStarted{round}));
  };
  CHECK(start(0, "--lr=0.2") ==
        "node 1 (host b) runs another command than this node: argument 1 is '--lr=0.2' there and '--lr=0.1' here\n");
  CHECK(start(1, "--lr=0.2").empty());
  CHECK_THAT(start(2, "--lr=0.3"), Catch::Contains("'--lr=0.3' there"));
}
