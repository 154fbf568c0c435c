#include "tests/unit/launcher/agent_fixtures.h"

using namespace ddprun;
using namespace ddprun::testing;

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

TEST_CASE("a replacement is counted in the rounds that follow") {
  ReplacingFixture f(RestartScope::automatic, 3);
  f.killed({1}, {true, true});
  f.run(1, 2);  // all workers are restarted
  const auto actions = f.killed({1}, {true, true});
  CHECK_THAT(announced(actions), Catch::Contains("restart 3 of 3"));
  CHECK(names(f.killed({0}, {true, true})) == "leave; stop 15");
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

TEST_CASE("whether workers can recover is answered for the round that runs") {
  AskingFixture f;
  CHECK(names(f.state.on(RecoveryAsked{4})) == "answer 4: ''");
  CHECK(names(f.state.on(RecoveryAsked{3})) == "answer 3: 'the workers of its node 0 have stopped'");
  f.state.on(RoundProposed{round_of(5), "why"});
  CHECK(names(f.state.on(RecoveryAsked{4})) == "answer 4: 'the workers of its node 0 have stopped'");
  CHECK(names(f.replaced({2}, 1)).empty());
}
