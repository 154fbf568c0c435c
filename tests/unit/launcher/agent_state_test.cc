#include "launcher/agent/agent_state.h"

#include <csignal>
#include <set>
#include <string>

#include <fmt/ranges.h>

#include "rendezvous/membership/worker_failure.h"
#include "rendezvous/membership/worker_names.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

Round round_of(std::int64_t generation) {
  Round round;
  round.generation = generation;
  round.members = {{.node_id = "a", .host = "a", .nproc = 2}};
  round.world_size = 2;
  return round;
}

// Returns abbreviated actions: "prepare 0; start 0; stop 15; kill; success 0; failure 0; leave; finish 3".
// Announcements are left out.
struct Name {
  std::string operator()(const PrepareRound& a) const { return fmt::format("prepare {}", a.generation); }
  std::string operator()(const StartWorkers& a) const { return fmt::format("start {}", a.round.generation); }
  std::string operator()(const ReplaceWorkers& a) const {
    return fmt::format("replace {} in {}: {}", fmt::join(a.local_ranks, " "), a.generation, fmt::join(a.members, " "));
  }
  std::string operator()(const StopWorkers& a) const { return fmt::format("stop {}", a.signal_number); }
  std::string operator()(const KillWorkers&) const { return "kill"; }
  std::string operator()(const ReleaseWorkers&) const { return "release"; }
  std::string operator()(const ChangeRound& a) const {
    return fmt::format("go on as {} of {}: {}", a.change.round.self, a.change.round.members.size(),
                       fmt::join(a.members, " "));
  }
  std::string operator()(const ReportSuccess& a) const { return fmt::format("success {}", a.generation); }
  std::string operator()(const ReportPreempted& a) const { return fmt::format("preempted {}", a.generation); }
  std::string operator()(const RequestStop& a) const { return "request stop: " + a.who; }
  std::string operator()(const ReportFailure& a) const {
    const auto* others = a.survivors == Survivors::stopped ? ""
                         : a.survivors == Survivors::run   ? ", others run"
                                                           : ", run or end";
    return fmt::format("failure {} of rank {}{}", a.generation, a.failures.at(0).rank, others);
  }
  std::string operator()(const AnswerRecovery& a) const {
    return fmt::format("answer {}: '{}'", a.generation, a.refusal);
  }
  std::string operator()(const StandBy& a) const { return fmt::format("stand by {}: {}", a.generation, a.world_size); }
  std::string operator()(const KeepRound& a) const { return a.done ? "keep, done" : "keep"; }
  std::string operator()(const GiveUpRound&) const { return "give up"; }
  std::string operator()(const LeaveJob&) const { return "leave"; }
  std::string operator()(const AskToLeave& a) const { return "ask to leave: " + a.reason; }
  std::string operator()(const JoinAgain&) const { return "join again"; }
  std::string operator()(const Announce&) const { return ""; }
  std::string operator()(const Finish& a) const { return fmt::format("finish {}", a.exit_code); }
};

std::string names(const AgentActions& actions) {
  std::string text;
  for (const auto& action : actions) {
    const auto name = std::visit(Name{}, action);
    if (!name.empty()) text += (text.empty() ? "" : "; ") + name;
  }
  return text;
}

std::string announced(const AgentActions& actions) {
  std::string text;
  for (const auto& action : actions)
    if (const auto* line = std::get_if<Announce>(&action)) text += line->text + "\n";
  return text;
}

struct Fixture {
  AgentState state;

  std::string proposed(std::int64_t generation) { return names(state.on(RoundProposed{round_of(generation), "why"})); }
  std::string started(std::int64_t generation) { return names(state.on(RoundStarted{round_of(generation)})); }
  std::string ended(int code) {
    return names(state.on(JobEnded{{.success = code == 0, .exit_code = code, .reason = "r"}}));
  }
  std::string failed(int rank) { return names(state.on_workers_failed({{.rank = rank, .exit_code = 3}})); }
  std::string stopped() { return names(state.on_workers_stopped()); }
  std::string succeeded() { return names(state.on_workers_succeeded()); }
  std::string signal(int number) { return names(state.on_signal(number)); }
  std::string asks_to_leave(Absence absence) { return names(state.on_leave_request("a trial", absence)); }
  std::string may_leave(const std::string& refusal = "") { return names(state.on(LeaveAnswered{refusal})); }
  std::string joins() { return names(state.on_join_request("a trial")); }
  void run(std::int64_t generation) {
    CHECK(proposed(generation) == fmt::format("prepare {}", generation));
    CHECK(started(generation) == fmt::format("start {}", generation));
  }
};

}  // namespace

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
  Fixture f;
  f.run(0);
  CHECK(f.succeeded() == "success 0");
  CHECK(f.ended(0) == "finish 0");
  CHECK(f.ended(1).empty());
  CHECK(f.signal(SIGTERM).empty());
}

TEST_CASE("a failure stops the node's workers and is reported, and the job result ends the job after the stop") {
  Fixture f;
  f.run(0);
  CHECK(f.failed(1) == "stop 15; failure 0 of rank 1");
  CHECK(f.ended(3).empty());
  CHECK(f.stopped() == "finish 3");
}

TEST_CASE("the job result may arrive after the workers have stopped") {
  Fixture f;
  f.run(0);
  f.failed(1);
  CHECK(f.stopped().empty());
  CHECK(f.ended(3) == "finish 3");
}

TEST_CASE("a restart waits until the old workers have stopped") {
  Fixture f;
  f.run(0);
  f.failed(1);
  CHECK(f.proposed(1).empty());
  CHECK(f.stopped() == "prepare 1");
  CHECK(f.started(1) == "start 1");
}

TEST_CASE("another node's failure stops this node's workers") {
  Fixture f;
  f.run(0);
  CHECK(f.proposed(1) == "stop 15");
  CHECK(f.proposed(2).empty());
  CHECK(f.stopped() == "prepare 2");
  CHECK(f.started(1).empty());
  CHECK(f.started(2) == "start 2");
}

TEST_CASE("a round may be proposed to a node whose workers have already succeeded") {
  Fixture f;
  f.run(0);
  f.succeeded();
  CHECK(f.proposed(1) == "prepare 1");
  CHECK(f.started(1) == "start 1");
}

TEST_CASE("the first signal ends gracefully, the second kills, the exit code is 128 + the first") {
  Fixture f;
  f.run(0);
  CHECK(f.signal(SIGINT) == "leave; stop 2");
  CHECK(f.signal(SIGTERM) == "kill");
  CHECK(f.ended(0).empty());
  CHECK(f.proposed(1).empty());
  CHECK(f.stopped() == "finish 130");
}

TEST_CASE("a signal while nothing runs ends at once") {
  Fixture f;
  f.proposed(0);
  CHECK(f.signal(SIGTERM) == "leave; finish 143");
}

TEST_CASE("if all workers succeed after a signal, the job ends by that signal nevertheless") {
  Fixture f;
  f.run(0);
  f.signal(SIGTERM);
  CHECK(f.succeeded() == "finish 143");
}

TEST_CASE("a signal during a stop keeps its grace period, a second one kills, and the job result is the exit code") {
  Fixture f;
  f.run(0);
  f.failed(0);
  f.ended(3);
  CHECK(f.signal(SIGTERM).empty());
  CHECK(f.signal(SIGTERM) == "kill");
  CHECK(f.stopped() == "finish 3");
}

TEST_CASE("a signal while workers stop for a new round ends the job, a second one kills") {
  Fixture f;
  f.run(0);
  CHECK(f.proposed(1) == "stop 15");
  CHECK(f.signal(SIGINT) == "leave; stop 2");
  CHECK(f.signal(SIGINT) == "kill");
  CHECK(f.stopped() == "finish 130");
}

TEST_CASE("preempted workers are reported when all have exited, and the job result is the exit code") {
  Fixture f;
  f.run(0);
  CHECK(names(f.state.on_workers_preempted()) == "preempted 0");
  CHECK(f.ended(75) == "finish 75");
}

TEST_CASE("workers preempted by a requested stop determine the exit code, but not after a failure") {
  Fixture signalled;
  signalled.run(0);
  signalled.signal(SIGTERM);
  CHECK(names(signalled.state.on_workers_stopped(true)) == "finish 75");
  Fixture asked;
  asked.run(0);
  asked.ended(128 + SIGTERM);
  CHECK(names(asked.state.on_workers_stopped(true)) == "finish 75");
  Fixture failed;
  failed.run(0);
  failed.ended(1);
  CHECK(names(failed.state.on_workers_stopped(true)) == "finish 1");
}

TEST_CASE("workers preempted by a membership change start again in the next round") {
  Fixture f;
  f.run(0);
  CHECK(f.proposed(1) == "stop 15");
  CHECK(names(f.state.on_workers_stopped(true)) == "prepare 1");
  CHECK(f.started(1) == "start 1");
}

TEST_CASE("a stop request is passed to the rendezvous, and the job result ends the job") {
  Fixture f;
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
  Fixture f;
  f.run(0);
  CHECK(names(f.state.on(ContactLost{Error(Errc::connection_lost, "gone")})) == "stop 15");
  CHECK(f.stopped() == "finish 1");
  Fixture refused;
  CHECK(names(refused.state.on(ContactLost{Error(Errc::usage, "differs")})) == "finish 2");
}

TEST_CASE("without the rendezvous no worker runs, and the next proposed round is prepared") {
  Fixture f;
  f.run(3);
  CHECK(names(f.state.on(ContactBroken{"gone"})) == "stop 15");
  CHECK(f.stopped().empty());
  CHECK(names(f.state.on(ContactBroken{"gone again"})).empty());
  f.run(5);
  Fixture slow;
  slow.run(3);
  slow.state.on(ContactBroken{"gone"});
  CHECK(slow.proposed(5).empty());
  CHECK(slow.stopped() == "prepare 5");
}

TEST_CASE("a round that was proposed before the rendezvous was lost is not started") {
  Fixture f;
  f.proposed(3);
  CHECK(names(f.state.on(ContactBroken{"gone"})).empty());
  CHECK(f.started(3).empty());
  CHECK(names(f.state.on(ContactLost{Error(Errc::connection_lost, "gone for good")})) == "finish 1");
}

TEST_CASE("an agent with an error notifies the other nodes before it ends") {
  Fixture f;
  f.proposed(0);
  CHECK(names(f.state.on_fault(Error(Errc::io, "no descriptors"))) == "leave; finish 1");
  Fixture running;
  running.run(0);
  CHECK(names(running.state.on_fault(Error(Errc::io, "no descriptors"))) == "leave; stop 15");
  CHECK(running.stopped() == "finish 1");
}

TEST_CASE("a failure while the job is ending is not reported") {
  Fixture f;
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
    Fixture member;
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

namespace {

// An agent whose two workers run, and which may replace them.
struct ReplacingFixture {
  explicit ReplacingFixture(RestartScope scope = RestartScope::automatic, int max_restarts = 3)
      : state({}, {.scope = scope, .single_workers = true, .max_restarts = max_restarts}) {
    run(0);
  }
  void run(std::int64_t generation, int restarts_used = 0) {
    auto round = round_of(generation);
    round.restarts_used = restarts_used;
    state.on(RoundProposed{round, "why"});
    state.on_workers_stopped();
    state.on(RoundStarted{round});
  }
  AgentActions killed(const std::vector<int>& ranks, const std::vector<bool>& able) {
    std::vector<WorkerCondition> workers;
    for (const bool each : able) workers.push_back({.able = each});
    return failed(ranks, workers);
  }
  AgentActions failed(const std::vector<int>& ranks, const std::vector<WorkerCondition>& workers) {
    std::vector<WorkerFailure> failures;
    for (const int rank : ranks)
      failures.push_back({.rank = rank, .local_rank = rank, .host = "a", .signal_number = 9});
    return state.on_workers_failed(failures, workers);
  }

  AgentState state;
};

}  // namespace

TEST_CASE("a worker that dies while all have announced that they can recover is replaced alone") {
  ReplacingFixture f;
  const auto actions = f.killed({1}, {true, true});
  CHECK(names(actions) == "replace 1 in 1: 0.0 1.1");
  CHECK_THAT(announced(actions),
             Catch::Contains("ended by SIGKILL; restart 1 of 3: a replacement for this rank alone"));
  CHECK(names(f.killed({0}, {true, true})) == "replace 0 in 2: 0.2 1.1");
  CHECK(names(f.state.on_workers_succeeded()) == "success 0");
}

TEST_CASE("all workers are restarted where one of them cannot recover") {
  CHECK(names(ReplacingFixture().killed({1}, {true, false})) == "stop 15; failure 0 of rank 1");
  CHECK(names(ReplacingFixture().killed({1}, {false, true})) == "stop 15; failure 0 of rank 1");
  CHECK(names(ReplacingFixture().killed({1}, {})) == "stop 15; failure 0 of rank 1");
  CHECK(names(ReplacingFixture().killed({0, 1}, {true, true})) == "stop 15; failure 0 of rank 0");  // no worker is left
  CHECK(names(ReplacingFixture(RestartScope::all).killed({1}, {true, true})) == "stop 15; failure 0 of rank 1");
}

TEST_CASE("the settings of a worker that refuses them are not tried again") {
  ReplacingFixture f;
  CHECK(names(f.state.on_workers_failed({{.rank = 1, .local_rank = 1, .exit_code = 2, .usage_error = true}},
                                        {{.able = true}, {.able = true}})) == "stop 15; failure 0 of rank 1");
}

TEST_CASE("a failed worker whose process still runs restarts all workers, so that no rank has two processes") {
  const std::vector<WorkerCondition> workers{{.able = true}, {.able = true, .running = true}};
  CHECK(names(ReplacingFixture().failed({1}, workers)) == "stop 15; failure 0 of rank 1");
  CHECK(names(ReplacingFixture().failed({0}, workers)) == "replace 0 in 1: 0.1 1.0");  // the other worker runs
}

TEST_CASE("a replacement that could not be started is not replaced itself, all workers are restarted") {
  ReplacingFixture f;
  const std::vector<WorkerCondition> workers{{.able = true}, {.able = true, .started = false}};
  CHECK(names(f.killed({1}, {true, true})) == "replace 1 in 1: 0.0 1.1");
  CHECK(names(f.failed({1}, workers)) == "stop 15; failure 0 of rank 1");
}

TEST_CASE("with --restart=failed the job ends with the failure's code where a replacement is impossible") {
  ReplacingFixture f(RestartScope::failed);
  const auto last = f.failed({1}, {{.able = true}, {.able = true, .running = true}});
  CHECK_THAT(announced(last), Catch::Contains("the process of rank 1 still runs (--restart=failed)"));
  CHECK(names(f.state.on_workers_stopped()) == "finish 137");
}

TEST_CASE("replacements and restarts of all workers use one budget") {
  ReplacingFixture f(RestartScope::automatic, 2);
  f.run(1, 1);  // all workers are restarted
  CHECK(names(f.killed({1}, {true, true})) == "replace 1 in 1: 0.0 1.1");
  const auto last = f.killed({0}, {true, true});
  CHECK(names(last) == "leave; stop 15");
  CHECK_THAT(announced(last), Catch::Contains("ended by SIGKILL; all 2 restarts used"));
  CHECK(names(f.state.on_workers_stopped()) == "finish 137");
}

TEST_CASE("a budget that no replacement has used is the rendezvous' to judge") {
  ReplacingFixture f(RestartScope::automatic, 1);
  f.run(1, 1);
  CHECK(names(f.killed({0}, {true, true})) == "stop 15; failure 1 of rank 0");
}

TEST_CASE("with --restart=failed the job ends where the other workers cannot recover") {
  ReplacingFixture f(RestartScope::failed);
  CHECK(names(f.killed({1}, {true, true})) == "replace 1 in 1: 0.0 1.1");
  const auto last = f.killed({1}, {false, true});
  CHECK(names(last) == "leave; stop 15");
  CHECK_THAT(announced(last), Catch::Contains("rank 0 has not announced that it can recover (--restart=failed)"));
  CHECK(names(f.state.on_workers_stopped()) == "finish 2");
}

TEST_CASE("a worker that dies while the others stop is not replaced") {
  ReplacingFixture f;
  f.state.on(RoundProposed{round_of(1), "node b joined"});
  CHECK(names(f.killed({1}, {true, true})) == "stop 15; failure 0 of rank 1");
}

namespace {

// The agent of the second of two nodes with two workers each, in a job whose rendezvous server decides on replacements.
struct AskingFixture {
  explicit AskingFixture(RestartScope scope = RestartScope::automatic)
      : state({}, {.scope = scope, .single_workers = true, .asks_server = true, .max_restarts = 3}) {
    round = round_of(4);
    round.members.push_back({.node_id = "b", .host = "b", .group_rank = 1, .nproc = 2, .first_rank = 2});
    round.world_size = 4;
    round.self = 1;
    for (auto& member : round.members) name_workers(member, 0);
    state.on(RoundProposed{round, "why"});
    state.on(RoundStarted{round});
  }
  static WorkerFailure failure_of(int rank) {
    return {.rank = rank, .local_rank = rank % 2, .group_rank = rank / 2, .host = "h", .signal_number = 9};
  }
  std::string killed(int rank, const std::vector<WorkerCondition>& workers = std::vector<WorkerCondition>(2)) {
    return names(state.on_workers_failed({failure_of(rank)}, workers));
  }
  AgentActions replaced(const std::vector<int>& ranks, int restarts_used) {
    WorkersReplaced event{
        .generation = 4, .restarts_used = restarts_used, .failures = {}, .group_generation = ++group_generation};
    for (const int rank : ranks) event.failures.push_back(failure_of(rank));
    rename_replaced(round, event);
    return state.on(event);
  }

  // A change of the round to these nodes, as seen by node `self`.
  AgentActions changed(const std::vector<std::string>& nodes, int self, const std::vector<int>& newcomers = {}) {
    RoundChanged event{.round = round_of(4), .newcomers = newcomers, .reason = "node c was lost"};
    event.round.members.clear();
    for (const auto& node : nodes) {
      const auto rank = static_cast<int>(event.round.members.size());
      event.round.members.push_back(
          {.node_id = node, .host = node, .group_rank = rank, .nproc = 2, .first_rank = 2 * rank});
    }
    event.round.world_size = 2 * static_cast<int>(nodes.size());
    event.round.self = self;
    event.round.group_generation = ++group_generation;
    std::set<std::string> joining;
    for (const int newcomer : newcomers) joining.insert(nodes[static_cast<std::size_t>(newcomer)]);
    keep_names(event.round, round, joining);
    event.round.master_addr = store;
    round = event.round;
    return state.on(event);
  }

  AgentState state;
  Round round;        // as the server knows it
  std::string store;  // the host of its workers' store
  std::uint64_t group_generation = 0;
};

}  // namespace

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

TEST_CASE("workers of a node that has left end by themselves where the round goes on") {
  AskingFixture f;
  CHECK(names(f.state.on_leave_request("a trial", Absence::for_a_time)) == "ask to leave: a trial");
  CHECK(names(f.state.on(LeaveAnswered{.refusal = {}, .round_goes_on = true})) == "release");
  CHECK(f.state.away());
  CHECK(names(f.state.on_workers_stopped()).empty());
  AskingFixture ends;
  ends.state.on_leave_request("a trial", Absence::for_good);
  CHECK(names(ends.state.on(LeaveAnswered{.refusal = {}, .round_goes_on = true})) == "release; leave");
  CHECK(names(ends.state.on_workers_stopped()) == "finish 143");
}

TEST_CASE("a node that gets a signal asks to leave where the round may go on without it, and ends in any case") {
  AskingFixture f;
  CHECK(names(f.state.on_signal(SIGINT)) == "leave; stop 2");  // its workers have not announced anything
  AskingFixture able;
  able.state.on(WorkersRecoverable{4, true});
  CHECK(names(able.state.on_signal(SIGINT)) == "ask to leave: stopped by SIGINT");
  SECTION("the round goes on") {
    CHECK(names(able.state.on(LeaveAnswered{.refusal = {}, .round_goes_on = true})) == "release; leave");
    CHECK(names(able.state.on_signal(SIGINT)) == "kill");
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

TEST_CASE("the workers of a single node do not run on without a rendezvous") {
  AskingFixture f;
  f.state.on(WorkersRecoverable{4, true});
  const ContactBroken broken{.text = "lost", .lease = std::chrono::seconds(5)};
  CHECK(f.state.trains_on(broken));
  f.changed({"b"}, 0);
  CHECK_FALSE(f.state.trains_on(broken));
}

TEST_CASE(
    "in a job of several nodes a failed worker is reported while the others run, and replaced when that is decided") {
  AskingFixture f;
  CHECK(f.killed(2) == "failure 4 of rank 2, others run");
  const auto actions = f.replaced({2}, 1);
  CHECK(names(actions) == "replace 0 in 1: 0.0 1.0 2.1 3.0");
  CHECK_THAT(announced(actions), Catch::Contains("rank 2") && Catch::Contains("restart 1 of 3: a replacement"));
  CHECK(names(f.replaced({0}, 2)) == "replace  in 2: 0.2 1.0 2.1 3.0");  // that of another node
  CHECK(names(f.replaced({1, 3}, 3)) == "replace 1 in 3: 0.2 1.3 2.1 3.3");
  CHECK(AskingFixture(RestartScope::failed).killed(2) == "failure 4 of rank 2, run or end");
}

TEST_CASE("an agent whose failed workers are not replaced stops the others, and takes part in what follows") {
  AskingFixture f;
  f.killed(2);
  CHECK(names(f.state.on(ReplacementRefused{4})) == "stop 15");
  CHECK(names(f.state.on(RoundProposed{round_of(5), "why"})).empty());  // they are stopping
  CHECK(names(f.state.on_workers_stopped()) == "prepare 5");
}

TEST_CASE("a failed worker that nobody can replace stops the others at once") {
  CHECK(AskingFixture().killed(2, {{.running = true}, {}}) == "stop 15; failure 4 of rank 2");
  CHECK(AskingFixture().killed(2, {{.started = false}, {}}) == "stop 15; failure 4 of rank 2");
  CHECK(AskingFixture().killed(2, {}) == "stop 15; failure 4 of rank 2");
  AskingFixture f;
  CHECK(names(f.state.on_workers_failed({{.rank = 2, .exit_code = 2, .usage_error = true}},
                                        std::vector<WorkerCondition>(2))) == "stop 15; failure 4 of rank 2");
  AskingFixture ends(RestartScope::failed);
  const auto actions = ends.state.on_workers_failed({AskingFixture::failure_of(2)}, {{.running = true}, {}});
  CHECK_THAT(announced(actions), Catch::Contains("the process of rank 2 still runs (--restart=failed)"));
}

TEST_CASE("a spare stands by when it is asked, and joins when its node takes the place of another") {
  AgentState state;
  CHECK(names(state.on(RendezvousWaiting{"this node is a spare"})).empty());
  CHECK(names(state.on(StandbyAsked{4, 2})) == "stand by 4: 2");
  state.on(JobEnded{{.success = true}});
  CHECK(names(state.on(StandbyAsked{4, 2})).empty());
}

TEST_CASE("whether workers can recover is answered for the round that runs") {
  AskingFixture f;
  CHECK(names(f.state.on(RecoveryAsked{4})) == "answer 4: ''");
  CHECK(names(f.state.on(RecoveryAsked{3})) == "answer 3: 'the workers of its node 0 have stopped'");
  f.state.on(RoundProposed{round_of(5), "why"});
  CHECK(names(f.state.on(RecoveryAsked{4})) == "answer 4: 'the workers of its node 0 have stopped'");
  CHECK(names(f.replaced({2}, 1)).empty());
}

TEST_CASE("a node leaves for a time when the others are enough, and joins again when its workers have stopped") {
  Fixture f;
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
  Fixture f;
  f.run(0);
  f.asks_to_leave(Absence::for_a_time);
  f.may_leave();
  CHECK((GENERATE(false, true) ? f.succeeded() : names(f.state.on_workers_preempted())).empty());
  CHECK(f.joins() == "join again");
}

TEST_CASE("a node that leaves for good ends as after a signal") {
  Fixture f;
  f.run(0);
  CHECK(f.asks_to_leave(Absence::for_good) == "ask to leave: a trial");
  CHECK(f.may_leave() == "leave; stop 15");
  const bool preempted = GENERATE(false, true);
  CHECK(names(f.state.on_workers_stopped(preempted)) == (preempted ? "finish 75" : "finish 143"));
}

TEST_CASE("a node that is away ends with the job, by a signal, and joins again with a new session") {
  Fixture f;
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
