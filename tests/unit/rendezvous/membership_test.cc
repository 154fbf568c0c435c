#include "rendezvous/membership/membership.h"

#include <map>
#include <set>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/membership_job.h"

using namespace ddprun;
using namespace std::chrono_literals;
using ddprun::testing::Job;

namespace {

using Ranks = std::map<std::string, int>;

}  // namespace

// ---- forming

TEST_CASE("a round is proposed at once when the maximum is reached, and started when all are ready") {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join("a", std::nullopt, 2);
  CHECK(job.proposed.empty());
  CHECK_THAT(job.waiting["a"], Catch::Contains("1 of 2 nodes") && Catch::Contains("here: a"));
  job.join("b", std::nullopt, 3);
  REQUIRE(job.proposed.size() == 2);
  CHECK(job.proposed["a"].reason == "first round");
  job.ready("a");
  CHECK(job.started.empty());
  job.ready("b");
  REQUIRE(job.started.size() == 2);
  const Round& round = job.started["b"];
  CHECK(round.self == 1);
  CHECK(round.generation == 0);
  CHECK(round.world_size == 5);
  CHECK(round.members[1].first_rank == 2);
  CHECK(round.master_addr == "10.0.0.1");
  CHECK(round.master_port == 4000);
}

TEST_CASE("between minimum and maximum the last call starts when the minimum is reached") {
  Job job({.min_nodes = 2, .max_nodes = 4, .last_call = 30s});
  job.join("a");
  job.pass(100s);
  job.join("b");
  job.pass(20s);
  CHECK_THAT(job.waiting["a"], Catch::Contains("waiting up to 30 s for more"));
  job.join("c");
  job.pass(9s);
  CHECK(job.proposed.empty());
  job.pass(1s);
  CHECK(job.proposed.size() == 3);
}

TEST_CASE("the last call is cancelled if nodes fall below the minimum") {
  Job job({.min_nodes = 2, .max_nodes = 4, .last_call = 30s});
  job.join("a");
  job.join("b");
  job.lose("b");
  job.pass(60s);
  CHECK(job.proposed.empty());
  job.join("c");
  job.pass(29s);
  CHECK(job.proposed.empty());
  job.pass(1s);
  CHECK(job.proposed.size() == 2);
}

TEST_CASE("with too few nodes the job ends after the join timeout, naming those that joined and the number missing") {
  Job job({.min_nodes = 3, .max_nodes = 3, .join_timeout = 600s});
  job.join("a");
  job.pass(300s);
  job.join("b");
  job.pass(299s);
  CHECK(job.ended.empty());
  job.pass(1s);
  REQUIRE(job.ended.size() == 2);
  const JobResult& result = job.ended["a"];
  CHECK_FALSE(result.success);
  CHECK(result.exit_code == 1);
  CHECK_THAT(result.reason, Catch::Contains("after 600 s only 2 of 3 nodes are here (here: a, b; missing: 1 node)"));
}

TEST_CASE("with fixed ranks the missing ranks are named") {
  Job job({.min_nodes = 4, .max_nodes = 4, .fixed_ranks = true, .join_timeout = 60s});
  job.join("a", 2);
  job.pass(60s);
  CHECK_THAT(job.ended["a"].reason, Catch::Contains("missing: node rank 0, 1, 3"));
}

TEST_CASE("the waiting text is sent again only when it has changed") {
  Job job({.min_nodes = 3, .max_nodes = 3});
  job.join("a");
  job.waiting.clear();
  job.pass(10s);
  CHECK(job.waiting.empty());
  job.join("b");
  job.pass(1s);
  CHECK_THAT(job.waiting["a"], Catch::Contains("2 of 3 nodes"));
}

// ---- admission

TEST_CASE("a node with other options is refused by name and changes nothing") {
  Job job({.run_id = "r7", .min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join("a");
  job.join("b", JobPolicy{.run_id = "r7", .min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
  CHECK_THAT(job.refused["b"], Catch::Contains("'r7'") && Catch::Contains("host a") &&
                                   Catch::Contains("--max_restarts 3 where the job has 1"));
  job.join("c", JobPolicy{.run_id = "r7", .min_nodes = 1, .max_nodes = 4, .max_restarts = 1});
  CHECK_THAT(job.refused["c"], Catch::Contains("--nnodes 1:4 where the job has 2"));
  job.join("d", JobPolicy{.run_id = "r7", .min_nodes = 2, .max_nodes = 2, .agent_store = false, .max_restarts = 1});
  CHECK_THAT(job.refused["d"], Catch::Contains("--no_agent_store on where the job has off"));
  job.join("e", JobPolicy{.run_id = "r7", .min_nodes = 2, .max_nodes = 2, .mpi = true, .max_restarts = 1});
  CHECK_THAT(job.refused["e"], Catch::Contains("--mpi on where the job has off"));
  CHECK(job.proposed.empty());
}

TEST_CASE("another program under the same run id is another job and is refused") {
  Job job({.program = "train.cfg", .min_nodes = 2, .max_nodes = 2});
  job.join("a");
  job.join("b", JobPolicy{.program = "other.cfg", .min_nodes = 2, .max_nodes = 2});
  CHECK_THAT(job.refused["b"], Catch::Contains("the program other.cfg where the job has train.cfg"));
}

TEST_CASE("with fixed ranks, the same rank twice and a rank out of range are refused by name") {
  const JobPolicy policy{.min_nodes = 2, .max_nodes = 2, .fixed_ranks = true};
  Job job(policy);
  job.join("a", 1);
  job.join("b", 1);
  CHECK_THAT(job.refused["b"], Catch::Contains("node rank 1") && Catch::Contains("taken by host a"));
  job.join("c", 2);
  CHECK_THAT(job.refused["c"], Catch::Contains("ranks 0 to 1"));
  job.join("d");
  CHECK(job.refused.contains("d"));
  job.join("e", 0);
  CHECK(job.ranks() == Ranks{{"e", 0}, {"a", 1}});
}

TEST_CASE("a late node below the maximum leads to a new round that does not count against the budget") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 0ms});
  job.join_and_start({"b"});
  CHECK(job.running().generation == 0);
  job.join("a");
  CHECK(job.proposed["b"].reason == "node a joined");
  CHECK(job.started.empty());
  job.ready_all();
  CHECK(job.running().generation == 1);
  CHECK(job.running().restarts_used == 0);
  CHECK(job.ranks() == Ranks{{"b", 0}, {"a", 1}});
}

TEST_CASE("a node beyond the maximum is a spare and replaces one that is lost") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.join("c");
  CHECK_THAT(job.waiting["c"], Catch::Contains("is a spare"));
  CHECK(job.started.size() == 2);
  job.lose("a");
  CHECK(job.ranks() == Ranks{{"c", 0}, {"b", 1}});
  job.ready_all();
  CHECK(job.running().generation == 1);
}

TEST_CASE("without restarts a node that comes to all nodes of a fixed number is dropped at once with the way out") {
  Job job({.run_id = "r7", .min_nodes = 2, .max_nodes = 2});
  job.join("a");
  job.join("b");
  const bool running = GENERATE(false, true);
  if (running) job.ready_all();
  job.join("c");
  CHECK_THAT(job.dropped["c"], Catch::Contains("'r7'") && Catch::Contains("2 nodes (on a, b)") &&
                                   Catch::Contains("another --rdzv_id") && Catch::Contains("--nnodes=MIN:MAX"));
  CHECK_FALSE(job.membership().has("c"));
  CHECK(job.proposals == 1);
  job.lose("b");
  CHECK_THAT(job.ended["a"].reason, Catch::Contains("node b was lost"));
}

TEST_CASE("with restarts a node that comes to all nodes of a fixed number is dropped once all have been heard") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join_and_start({"a", "b"});
  job.silence("b");
  job.pass(100ms);
  job.join("c");
  job.pass(2s);
  CHECK(job.dropped.empty());
  SECTION("one of them is lost: it is the replacement") {
    job.pass(3s);
    CHECK(job.dropped.contains("b"));
    CHECK(job.ranks() == Ranks{{"a", 0}, {"c", 1}});
  }
  SECTION("all are there") {
    job.beat("b");
    job.tick();
    CHECK_THAT(job.dropped["c"], Catch::Contains("another --rdzv_id"));
    CHECK(job.dropped.size() == 1);
    CHECK(job.proposals == 1);
  }
  SECTION("the job ends meanwhile: it has run nothing and gets no result") {
    job.success("a");
    job.success("b");
    CHECK(job.ended.size() == 2);
    CHECK(job.dropped.contains("c"));
  }
}

TEST_CASE("a node that joins when others have succeeded waits and starts no new round") {
  Job job({.min_nodes = 1, .max_nodes = 3, .last_call = 1s});
  job.join("a");
  job.join("b");
  job.pass(1s);
  job.ready_all();
  job.success("a");
  job.join("c");
  CHECK(job.proposals == 1);
  job.success("b");
  CHECK(job.ended.size() == 3);
}

TEST_CASE("a node that joins when others have succeeded and left waits: no round below the minimum") {
  Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = 1});
  job.join_and_start({"a", "b", "c"});
  for (const auto* node : {"a", "b"}) {
    job.success(node);
    job.lose(node);
  }
  job.join("d");
  job.pass(3s);
  CHECK(job.proposals == 1);
  CHECK_THAT(job.waiting["d"], Catch::Contains("joins if one of them has been lost"));
  CHECK(job.dropped.empty());
  job.success("c");
  CHECK(job.ended["c"].success);
}

TEST_CASE("a node that opens a new session leads to a new round in which it keeps its rank") {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.join("b");
  CHECK(job.proposals == 2);
  CHECK_THAT(job.proposed["a"].reason, Catch::Contains("node b opened a new session"));
  CHECK(job.ranks() == Ranks{{"a", 0}, {"b", 1}});
  CHECK(job.proposed["a"].round.generation == 1);
}

// ---- changes of membership

TEST_CASE("survivors keep their ranks, a new node gets the free one") {
  Job job({.min_nodes = 2, .max_nodes = 3});
  job.join_and_start({"n1", "n2", "n10"});
  CHECK(job.ranks() == Ranks{{"n1", 0}, {"n2", 1}, {"n10", 2}});
  job.lose("n2");
  CHECK(job.ranks() == Ranks{{"n1", 0}, {"n10", 1}});
  job.ready_all();
  job.join("n5");
  CHECK(job.ranks() == Ranks{{"n1", 0}, {"n10", 1}, {"n5", 2}});
}

TEST_CASE("a node that was lost and rejoins gets its rank back") {
  Job job({.min_nodes = 3, .max_nodes = 3});
  job.join_and_start({"a", "b", "c"});
  job.lose("a");
  job.lose("b");
  job.join("b");
  job.join("a");
  CHECK(job.ranks() == Ranks{{"a", 0}, {"b", 1}, {"c", 2}});
}

TEST_CASE("a loss before all are ready leads to the next generation, and no node starts the old one") {
  Job job({.min_nodes = 2, .max_nodes = 3});
  job.join("a");
  job.join("b");
  job.join("c");
  job.ready("a");
  job.ready("b");
  job.lose("c");
  CHECK(job.started.empty());
  CHECK(job.proposed["a"].round.generation == 1);
  job.membership().ready(Membership::Time(1000s), "a", 0, 1);  // late, for the old round
  job.ready("a");
  CHECK(job.started.empty());
  job.ready("b");
  CHECK(job.started.size() == 2);
  CHECK(job.running().generation == 1);
}

TEST_CASE("below the minimum the job waits for a replacement, and continues with it") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1, .join_timeout = 600s});
  job.join_and_start({"a", "b"});
  job.lose("b");
  CHECK_THAT(job.waiting["a"],
             Catch::Contains("node b was lost: its connection closed (rank 1); 1 of 2 nodes are here"));
  job.pass(500s);
  job.join("c");
  job.ready_all();
  CHECK(job.running().generation == 1);
  CHECK(job.running().restarts_used == 0);
}

TEST_CASE("with a fixed number of nodes and no restarts a lost node ends the job") {
  Job job({.min_nodes = 2, .max_nodes = 2, .join_timeout = 600s});
  job.join_and_start({"a", "b"});
  job.lose("b");
  CHECK(job.ended["a"].exit_code == 1);
  CHECK(job.ended["a"].reason == "node b was lost: its connection closed (rank 1)");
}

TEST_CASE("below the minimum without a replacement the job ends after the join timeout, naming the loss") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3, .join_timeout = 600s});
  job.join_and_start({"a", "b"});
  job.lose("b");
  job.pass(599s);
  CHECK(job.ended.empty());
  job.pass(1s);
  CHECK(job.ended["a"].exit_code == 1);
  CHECK_THAT(job.ended["a"].reason, Catch::Contains("node b was lost") && Catch::Contains("only 1 of 2 nodes"));
}

TEST_CASE("a node that leaves is a change of membership") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.leave("a");
  CHECK(job.proposed["b"].reason == "node a left: SIGTERM");
  CHECK(job.ranks() == Ranks{{"b", 0}});
}

TEST_CASE("a node that asks leaves while the others are enough, hears of nothing but the end, and may join again") {
  Job job({.min_nodes = 2, .max_nodes = 3});
  job.join_and_start({"a", "b", "c"});
  CHECK(job.ask_to_leave("a").empty());
  CHECK(job.proposed["b"].reason == "node a left: a trial");
  CHECK(job.ranks() == Ranks{{"b", 1}, {"c", 0}});
  CHECK(job.ask_to_leave("b") == "it is in no round that runs");
  job.ready_all();
  CHECK(job.ask_to_leave("b") == "the job of --nnodes=2:3 has 2 nodes");
  CHECK(job.ask_to_leave("a") == "it is in no round that runs");
  CHECK(job.proposed.count("a") == 0);
  job.join("a");
  job.ready_all();
  CHECK(job.running().members.size() == 3);
  CHECK(job.ask_to_leave("c").empty());
  job.ready_all();
  for (const auto* node : {"a", "b"}) job.success(node);
  CHECK(job.ended["c"].success);
}

TEST_CASE("a node that asks stays where its leave would meet another change of the round") {
  Job job({.min_nodes = 1, .max_nodes = 3, .max_restarts = 2});
  job.join_and_start({"a", "b", "c"});
  SECTION("a node is silent and may be lost") {
    job.silence("c");
    job.pass(3s);
    CHECK(job.ask_to_leave("a") == "a node has missed a heartbeat and may be lost");
  }
  SECTION("a failure is to be judged") {
    job.fail("b", {.exit_code = 7});
    CHECK(job.ask_to_leave("a") == "its round is about to change");
  }
  SECTION("a worker is to be replaced") {
    job.lose_worker("b", 1);
    CHECK(job.ask_to_leave("a") == "its round is about to change");
  }
  SECTION("a node is done") {
    job.success("b");
    CHECK(job.ask_to_leave("a") == "its round is about to change");
  }
  CHECK(job.proposals == 1);
}

TEST_CASE("a spare takes the place of a node that asks to leave, also where no node may be missing") {
  Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 1});
  job.join_and_start({"a"});
  job.join("b");
  CHECK(job.ask_to_leave("a").empty());
  CHECK(job.ranks() == Ranks{{"b", 0}});
}

TEST_CASE("a job whose last member is lost while another node is away waits for that node") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  CHECK(job.ask_to_leave("b").empty());
  job.ready_all();
  job.lose("a");
  CHECK_FALSE(job.is_empty());
  job.join("b");
  job.pass(60s);
  CHECK(job.ranks().size() == 1);
  CHECK(job.ranks().contains("b"));
  job.leave("b");
  CHECK(job.is_empty());
}

TEST_CASE("a node that has left and whose session has ended does not hear of the end") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  CHECK(job.ask_to_leave("b").empty());
  job.ready_all();
  if (GENERATE(false, true))
    job.leave("b");
  else
    job.lose("b");
  CHECK(job.proposals == 2);
  job.success("a");
  CHECK(job.ended["a"].success);
  CHECK(job.ended.count("b") == 0);
}

TEST_CASE("a node whose workers have succeeded may leave without a new round") {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.success("a");
  job.lose("a");
  CHECK(job.proposals == 1);
  job.success("b");
  CHECK(job.ended["b"].success);
}

// ---- heartbeats

TEST_CASE("a node without heartbeats is dropped at the timeout, not before") {
  Job job({.min_nodes = 1, .max_nodes = 2, .keep_alive_interval = 1s, .keep_alive_max_attempt = 5});
  job.join_and_start({"a", "b"});
  job.silence("b");
  job.pass(4999ms);
  CHECK(job.dropped.empty());
  job.pass(1ms);
  CHECK_THAT(job.dropped["b"], Catch::Contains("5 s"));
  CHECK_THAT(job.proposed["a"].reason,
             Catch::Contains("node b was lost: no heartbeat for 5 s, frozen or cut off (rank 1)"));
}

TEST_CASE("a node whose heartbeats are just in time stays") {
  Job job({.min_nodes = 2, .max_nodes = 2, .keep_alive_interval = 1s, .keep_alive_max_attempt = 5});
  job.join_and_start({"a", "b"});
  job.silence("b");
  for (int i = 0; i < 10; ++i) {
    job.pass(4900ms);
    job.beat("b");
  }
  CHECK(job.dropped.empty());
}

TEST_CASE("heartbeats of other nodes do not postpone the tick that finds a silent one") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.silence("b");
  const auto due = job.membership().next_tick();
  job.beat("a");
  CHECK(job.membership().next_tick() == due);
}

TEST_CASE("several nodes that are lost together lead to one new round") {
  Job job({.min_nodes = 1, .max_nodes = 4});
  job.join_and_start({"a", "b", "c", "d"});
  for (const auto* node : {"b", "c", "d"}) {
    job.silence(node);
    job.pass(300ms);
  }
  job.pass(5s);
  CHECK(job.dropped.size() == 3);
  CHECK(job.proposals == 2);
  CHECK_THAT(job.proposed["a"].reason, Catch::Contains("node b and 2 more were lost"));
}

TEST_CASE("a server that was frozen drops no live node, and a dead one afterwards") {
  Job job({.min_nodes = 1, .max_nodes = 3});
  job.join_and_start({"a", "b", "c"});
  job.silence("c");
  job.pass(4500ms);
  job.freeze(3600s);
  job.tick();
  job.beat("a");
  job.tick();
  CHECK(job.dropped.empty());
  job.pass(10s);
  CHECK(job.dropped.size() == 1);
  CHECK(job.dropped.contains("c"));
}

TEST_CASE("after a freeze the server reads queued heartbeats before it drops a node") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.silence("b");
  job.pass(4900ms);
  job.freeze(60s);
  job.tick();  // the timer fires before the socket is read
  job.tick();
  CHECK(job.dropped.empty());
  job.beat("b");
  job.pass(1s);
  CHECK(job.dropped.empty());
}

TEST_CASE("a node that never reports ready is dropped after the join timeout") {
  Job job({.min_nodes = 1, .max_nodes = 2, .join_timeout = 60s});
  job.join("a");
  job.join("b");
  job.ready("a");
  job.pass(59s);
  CHECK(job.dropped.empty());
  job.pass(1s);
  CHECK(job.dropped.contains("b"));
  job.ready("a");
  CHECK(job.started.size() == 1);
}

// ---- how a job ends

TEST_CASE("the job succeeds when every node has") {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.success("a");
  job.success("a");
  CHECK(job.ended.empty());
  job.success("b");
  REQUIRE(job.ended.size() == 2);
  CHECK(job.ended["a"].success);
  CHECK(job.ended["a"].exit_code == 0);
  CHECK(job.ended["a"].reason == "all 2 workers on 2 nodes ended with 0");
}

TEST_CASE("without restarts a failure ends the job with the root cause's exit code on every node") {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.fail("b", {.rank = 3, .local_rank = 1, .exit_code = 7});
  job.pass(1s);
  REQUIRE(job.ended.size() == 2);
  CHECK(job.ended["a"].exit_code == 7);
  CHECK(job.ended["a"].reason == "rank 3 (local rank 1) on host b failed: exit code 7");
  REQUIRE(job.ended["a"].failures.size() == 1);
}

TEST_CASE("a usage error ends the job with its sentence, whatever restarts are left") {
  const WorkerFailure failure{.rank = 1, .exit_code = 2, .message = "no such key", .usage_error = true};
  Job alone({.max_restarts = 3});
  alone.join_and_start({"a"});
  alone.fail("a", failure);
  CHECK(alone.ended["a"].exit_code == 2);
  CHECK(alone.ended["a"].reason == "no such key");
  CHECK(alone.ended["a"].failures.at(0).usage_error);
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
  job.join_and_start({"a", "b"});
  job.fail("b", failure);
  job.pass(1s);
  CHECK(job.ended["a"].exit_code == 2);
  CHECK(job.ended["a"].reason == "no such key (rank 1 on host b)");
}

TEST_CASE("a worker ended by signal n gives exit code 128 + n") {
  Job job({});
  job.join_and_start({"a"});
  job.fail("a", {.signal_number = 9});
  CHECK(job.ended["a"].exit_code == 137);
  CHECK_THAT(job.ended["a"].reason, Catch::Contains("ended by SIGKILL"));
}

TEST_CASE("a job of one node is judged at once") {
  Job job({.max_restarts = 1});
  job.join_and_start({"a"});
  job.fail("a", {.exit_code = 3});
  CHECK(job.proposals == 2);
  CHECK_THAT(job.proposed["a"].reason, Catch::Contains("exit code 3; restart 1 of 1"));
}

TEST_CASE("the root cause is the failure observed first, not the one reported first") {
  Job job({.min_nodes = 3, .max_nodes = 3});
  job.join_and_start({"a", "b", "c"});
  job.fail("a", {.rank = 0, .exit_code = 1, .time_us = 2000});
  job.fail("b", {.rank = 1, .exit_code = 42, .time_us = 1000});
  CHECK(job.ended.empty());
  job.fail("c", {.rank = 2, .exit_code = 1, .time_us = 3000});  // all have reported, so judgement is immediate
  REQUIRE(job.ended.size() == 3);
  CHECK(job.ended["c"].exit_code == 42);
  REQUIRE(job.ended["c"].failures.size() == 3);
  CHECK(job.ended["c"].failures[0].rank == 1);
}

TEST_CASE("failures on any node count against one job-wide budget") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 2});
  job.join_and_start({"a", "b"});
  for (const auto* node : {"a", "b"}) {
    job.fail(node, {.exit_code = 5});
    job.pass(1s);
    job.ready_all();
  }
  CHECK(job.running().generation == 2);
  CHECK(job.running().restarts_used == 2);
  job.fail("a", {.exit_code = 6});
  job.pass(1s);
  CHECK(job.ended["b"].exit_code == 6);
  CHECK_THAT(job.ended["b"].reason, Catch::Contains("all 2 restarts used"));
}

TEST_CASE("simultaneous failures count once") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join_and_start({"a", "b"});
  job.fail("a", {.exit_code = 5});
  job.fail("b", {.exit_code = 5});
  job.pass(1s);
  CHECK(job.membership().restarts_used() == 1);
  CHECK(job.proposals == 2);
}

TEST_CASE("a node that joins between a failure and its judgement does not cancel it") {
  const int restarts = GENERATE(0, 1);
  CAPTURE(restarts);
  Job job({.min_nodes = 2, .max_nodes = 3, .max_restarts = restarts, .last_call = 0ms});
  job.join_and_start({"a", "b"});
  job.fail("a", {.exit_code = 5});
  job.join("c");
  job.pass(1s);
  if (restarts == 0) {
    CHECK(job.ended["a"].exit_code == 5);
  } else {
    job.ready_all();
    CHECK(job.running().restarts_used == 1);
    CHECK(job.running().members.size() == 3);
  }
}

namespace {

using Names = std::vector<std::string>;

// Three nodes of two ranks each, in the order of their ranks.
Job three_nodes(int max_restarts) {
  Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = max_restarts});
  for (const auto* node : {"a", "b", "c"}) job.join(node, std::nullopt, 2);
  job.ready_all();
  return job;
}

}  // namespace

TEST_CASE("a failed worker is replaced, with the same answer for all nodes, if all ranks can recover") {
  Job job = three_nodes(3);
  job.lose_worker("b", 3);
  CHECK(job.asked == Names{"a"});
  CHECK(job.replaced.empty());
  job.lose_worker("c", 4);  // it is part of the answer
  CHECK(job.asked == Names{"a"});
  job.answer("b");  // only group rank 0 knows
  CHECK(job.replaced.empty());
  job.answer("a");
  REQUIRE(job.replaced.size() == 3);
  for (const auto& [node, decided] : job.replaced) {
    REQUIRE(decided.size() == 1);
    CHECK(decided[0].restarts_used == 2);
    REQUIRE(decided[0].failures.size() == 2);
    CHECK(decided[0].failures[0].rank + decided[0].failures[1].rank == 7);
    CHECK(decided[0].failures[0].last_lines.empty());
  }
  job.pass(5s);
  CHECK(job.proposals == 1);  // no other round
  job.answer("a");            // nothing was asked
  CHECK(job.replaced["a"].size() == 1);
  job.lose_worker("a", 0);
  job.answer("a");
  CHECK(job.replaced["c"].size() == 2);
  CHECK(job.membership().restarts_used() == 3);
  for (const auto* node : {"a", "b", "c"}) job.success(node);
  CHECK(job.ended["b"].success);
}

TEST_CASE("if a rank cannot recover, the nodes that wait stop their workers, and the failure counts once") {
  Job job = three_nodes(1);
  job.lose_worker("b", 2);
  job.answer("a", "rank 5 has not announced that it can recover");
  CHECK(job.not_replaced == Names{"b"});
  CHECK(job.replaced.empty());
  job.pass(1s);
  CHECK(job.proposals == 2);
  CHECK(job.membership().restarts_used() == 1);
  CHECK_THAT(job.proposed["a"].reason, Catch::Contains("rank 2") && Catch::Contains("restart 1 of 1"));
}

TEST_CASE("failures of nodes that stopped their workers, of all ranks, or beyond the budget are not replaced") {
  SECTION("another node has stopped its workers before") {
    Job job = three_nodes(3);
    job.fail("c", {.rank = 5, .exit_code = 1});
    job.lose_worker("b", 2);
    CHECK(job.asked.empty());
    CHECK(job.not_replaced == Names{"b"});
  }
  SECTION("another node stops its workers while the question is open") {
    Job job = three_nodes(3);
    job.lose_worker("b", 2);
    job.fail("c", {.rank = 5, .exit_code = 1});
    job.answer("a");
    CHECK(job.not_replaced == Names{"b"});
    CHECK(job.replaced.empty());
    job.pass(1s);
    CHECK(job.membership().restarts_used() == 1);
  }
  SECTION("no restart is left") {
    Job job = three_nodes(1);
    job.lose_worker("b", 2);
    job.lose_worker("c", 4);
    CHECK(job.not_replaced == Names{"c"});
    job.answer("a");
    CHECK(job.not_replaced == Names{"c", "b"});
    job.pass(1s);
    CHECK(job.membership().restarts_used() == 1);
    job.ready_all();
    job.lose_worker("b", 2);
    job.pass(1s);
    CHECK_THAT(job.ended["a"].reason, Catch::Contains("the one restart is used"));
  }
  SECTION("no rank is left") {
    Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 3, .last_call = 0ms});
    job.join_and_start({"a"});
    job.lose_worker("a", 0);
    CHECK(job.asked.empty());
    CHECK(job.not_replaced == Names{"a"});
  }
  SECTION("the workers of another node are done") {
    Job job = three_nodes(3);
    job.success("c");
    job.lose_worker("b", 2);
    CHECK(job.not_replaced == Names{"b"});
  }
  SECTION("the failure names a rank of another node") {
    Job job = three_nodes(3);
    job.lose_worker("b", 0);
    CHECK(job.not_replaced == Names{"b"});
  }
}

TEST_CASE("a job that is to replace workers or end, ends with the reason where it cannot replace them") {
  Job job = three_nodes(3);
  job.lose_worker("b", 2, Survivors::run_or_end);
  SECTION("the workers cannot recover") {
    job.answer("a", "rank 5 has not announced that it can recover");
    CHECK(job.ended["c"].exit_code == 2);
    CHECK_THAT(job.ended["c"].reason,
               Catch::Contains("rank 5 has not announced that it can recover (--restart=failed)"));
  }
  SECTION("a node has stopped its workers") {
    job.fail("c", {.rank = 5, .exit_code = 1});
    job.answer("a");
    CHECK(job.ended["c"].exit_code == 137);
  }
}

TEST_CASE("the loss of a node while a question is open leads to a round without it, and forgets the question") {
  Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 3, .last_call = 0ms});
  for (const auto* node : {"a", "b"}) job.join(node, std::nullopt, 2);
  job.ready_all();
  job.lose_worker("b", 2);
  job.lose("a");
  CHECK(job.proposed["b"].round.members.size() == 1);
  job.ready_all();
  job.answer("b");
  CHECK(job.replaced.empty());
  CHECK(job.membership().restarts_used() == 0);
  job.lose_worker("b", 1);
  job.answer("b");
  CHECK(job.replaced["b"].size() == 1);
}

TEST_CASE("a node 0 that is done and leaves while it is asked does not leave the others waiting") {
  Job job = three_nodes(3);
  job.lose_worker("b", 2);
  job.success("a");
  job.lose("a");
  CHECK(job.not_replaced == Names{"b"});
  job.pass(1s);
  CHECK(job.membership().forming());  // for another node in its place
}

TEST_CASE("a failure of an old generation is ignored") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 0ms});
  job.join_and_start({"a"});
  job.join("b");
  job.fail("a", {.exit_code = 5}, 0);
  job.ready_all();
  job.fail("a", {.exit_code = 5}, 0);
  job.pass(1s);
  CHECK(job.ended.empty());
  CHECK(job.running().generation == 1);
}

TEST_CASE("failures caused by the loss of a node cost no restart") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.fail("a", {.exit_code = 5});
  job.lose("b");
  CHECK(job.ended.empty());
  CHECK(job.proposed["a"].round.generation == 1);
  CHECK(job.membership().restarts_used() == 0);
}

TEST_CASE("in a job without restarts a failure observed before a loss is the cause of its end") {
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  SECTION("the node's connection closes") {
    job.fail("a", {.rank = 0, .exit_code = 5});
    job.lose("b");
    CHECK(job.ended["a"].exit_code == 5);
    CHECK_THAT(job.ended["a"].reason, Catch::Contains("exit code 5; then node b was lost: its connection closed"));
    CHECK(job.ended["a"].failures.size() == 1);
  }
  SECTION("the server shuts down") {
    job.fail("a", {.rank = 0, .exit_code = 5});
    job.server_leaves();
    CHECK(job.ended["b"].exit_code == 5);
  }
  SECTION("the node had missed heartbeats before: the failure may be a consequence") {
    job.silence("b");
    job.pass(3s);
    job.fail("a", {.rank = 0, .exit_code = 5});
    job.pass(3s);
    CHECK(job.ended["a"].exit_code == 1);
    CHECK_THAT(job.ended["a"].reason, Catch::Contains("no heartbeat"));
  }
}

TEST_CASE("workers that name a lost peer end a fixed job before its node counts as lost") {
  const bool names_peer = GENERATE(true, false);
  Job job({.min_nodes = 2, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.silence("b");
  job.pass(3s);
  job.fail("a", {.rank = 0, .exit_code = 5, .message = "rank 1 was lost", .consequence = names_peer});
  job.pass(1s);
  CHECK(job.ended.contains("a") == names_peer);
  if (names_peer) CHECK(job.ended["a"].exit_code == 5);
}

TEST_CASE("a failure is not judged while another node is overdue") {
  Job job({.min_nodes = 1, .max_nodes = 2});
  job.join_and_start({"a", "b"});
  job.silence("b");
  job.pass(3s);
  job.fail("a", {.exit_code = 5});
  job.pass(1s);
  CHECK(job.ended.empty());
  SECTION("it is lost: a change of membership") {
    job.pass(3s);
    CHECK(job.ended.empty());
    CHECK(job.ranks() == Ranks{{"a", 0}});
  }
  SECTION("it is heard again: a failure") {
    job.beat("b");
    job.pass(1s);
    CHECK(job.ended["a"].exit_code == 5);
  }
}

// ---- a new server

TEST_CASE("a server that shuts down ends a job without restarts, and not one with restarts") {
  Job rigid({.min_nodes = 2, .max_nodes = 2});
  rigid.join_and_start({"a", "b"});
  rigid.server_leaves();
  CHECK(rigid.ended["b"].exit_code == 1);
  CHECK(rigid.ended["b"].reason == "stopped by SIGTERM");
  Job elastic({.min_nodes = 1, .max_nodes = 2});
  elastic.join_and_start({"a", "b"});
  elastic.server_leaves();
  CHECK(elastic.ended.empty());
}

TEST_CASE("a new server continues after the latest round reported") {
  Job job({.min_nodes = 3, .max_nodes = 3, .max_restarts = 5});
  job.rejoin("node9", {.generation = 6, .group_rank = 2, .restarts_used = 1});
  job.rejoin("node4", {.generation = 7, .group_rank = 0, .restarts_used = 3});
  job.join("node1");
  CHECK(job.ranks() == Ranks{{"node4", 0}, {"node1", 1}, {"node9", 2}});
  CHECK(job.proposed["node1"].reason == "the rendezvous server was restarted");
  job.ready_all();
  CHECK(job.running().generation == 8);
  CHECK(job.running().restarts_used == 3);
}

TEST_CASE("a new server does not count more restarts than the budget") {
  Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 2});
  job.rejoin("a", {.generation = 1, .restarts_used = 100});
  job.ready_all();
  job.fail("a", {.exit_code = 5});
  CHECK_THAT(job.ended["a"].reason, Catch::Contains("all 2 restarts used"));
}

TEST_CASE("a job result says that all restarts are used, also if there was one") {
  Job job({.min_nodes = 1, .max_nodes = 1, .max_restarts = 1});
  job.rejoin("a", {.generation = 1, .restarts_used = 1});
  job.ready_all();
  job.fail("a", {.exit_code = 5});
  CHECK_THAT(job.ended["a"].reason, Catch::EndsWith("failed: exit code 5; the one restart is used"));
}

TEST_CASE("at a new server a node of the previous round replaces a lost one before a spare does") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join("c");
  job.rejoin("b", {.generation = 3, .group_rank = 1});
  job.join("spare");
  job.rejoin("a", {.generation = 3, .group_rank = 0});
  job.lose("c");
  CHECK(job.ranks() == Ranks{{"a", 0}, {"b", 1}});
}

TEST_CASE("a node that comes from an earlier server takes no rank of a node that stayed at this one") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join_and_start({"a", "b"});
  job.lose("b");
  job.rejoin("c", {.generation = 7, .group_rank = 0});
  CHECK(job.ranks() == Ranks{{"a", 0}, {"c", 1}});
  CHECK(job.proposed["a"].round.generation == 8);
}

TEST_CASE("a node that rejoins late at a new server leads to a later generation") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 0s});
  job.join_and_start({"a"});
  CHECK(job.running().generation == 0);
  job.rejoin("b", {.generation = 7, .group_rank = 0});
  job.ready_all();
  CHECK(job.running().generation == 8);
}

// ---- rounds that go on at a new server

namespace {

const JobPolicy two_of_three{.min_nodes = 2, .max_nodes = 3, .max_restarts = 3, .last_call = 0s};

// Returns what a node reports whose workers run in generation 6. That has two nodes, of which "a" is the first.
FormerRound kept(int group_rank, int restarts_used = 1) {
  return {.generation = 6,
          .group_rank = group_rank,
          .restarts_used = restarts_used,
          .nodes = 2,
          .first = "a",
          .master_addr = "10.0.0.7",
          .master_port = 4711};
}

}  // namespace

TEST_CASE("a round whose workers run on all of its nodes goes on at a new server") {
  Job job(two_of_three);
  job.rejoin("b", kept(1));
  CHECK_THAT(job.waiting["b"], Catch::Contains("1 of 2 nodes of generation 6 are back"));
  CHECK(job.resumed.empty());
  job.rejoin("a", kept(0));
  CHECK(job.resumed == std::map<std::string, std::int64_t>{{"a", 6}, {"b", 6}});
  CHECK(job.proposals == 0);
  job.pass(60s);
  CHECK(job.proposals == 0);
  job.lose_worker("b", 1);
  CHECK(job.asked == std::vector<std::string>{"a"});
  job.answer("a");
  CHECK(job.replaced["a"].at(0).restarts_used == 2);
  job.success("a");
  job.success("b");
  CHECK(job.ended["a"].success);
}

TEST_CASE("the next round after one that goes on at a new server has the next generation, and the same ranks") {
  Job job(two_of_three);
  job.rejoin("b", kept(1));
  job.rejoin("a", kept(0));
  job.join("c");
  CHECK(job.ranks() == Ranks{{"a", 0}, {"b", 1}, {"c", 2}});
  CHECK(job.proposed["a"].round.generation == 7);
  CHECK(job.proposed["a"].round.restarts_used == 1);
}

TEST_CASE("no round begins before the workers of one whose nodes have not come back must have stopped") {
  Job job(two_of_three);
  job.rejoin("b", kept(1));
  std::string why = "1 of its 2 nodes came back";
  SECTION("the node is silent") {
    job.join("c");
    job.join("d");
  }
  SECTION("its workers have stopped") {
    job.rejoin("a", {.generation = 6, .group_rank = 0, .restarts_used = 1});
  }
  SECTION("it has not got the last replacements") {
    job.rejoin("a", kept(0, 0));
    why = "its nodes came back in different states";
  }
  SECTION("it was in another round of this generation") {
    auto other = kept(0);
    other.first = "z";
    job.rejoin("a", other);
    CHECK(job.not_replaced == std::vector<std::string>{"a"});
  }
  job.pass(4900ms);  // the heartbeat timeout is 5 s
  CHECK(job.proposals == 0);
  job.pass(200ms);
  CHECK(job.proposals == 1);
  CHECK(job.proposed["b"].round.generation == 7);
  CHECK_THAT(job.proposed["b"].reason, Catch::EndsWith("generation 6 does not go on: " + why));
  CHECK(job.resumed.empty());
}

TEST_CASE("a round does not go on that a node has left behind") {
  auto policy = two_of_three;
  policy.max_nodes = 2;
  Job job(policy);
  job.rejoin("c", {.generation = 7, .group_rank = 1, .restarts_used = 1});
  job.rejoin("b", kept(1));
  job.rejoin("a", kept(0));
  CHECK(job.resumed.empty());
  CHECK(job.proposals == 0);
  job.pass(6s);
  CHECK(job.proposed["c"].round.generation == 8);
}

TEST_CASE("of two rounds whose workers run the later one goes on") {
  Job job(two_of_three);
  job.rejoin(
      "c", {.generation = 5, .group_rank = 0, .restarts_used = 1, .nodes = 2, .first = "c", .master_addr = "10.0.0.7"});
  job.rejoin("b", kept(1));
  job.lose("c");
  job.rejoin("a", kept(0));
  CHECK(job.resumed.size() == 2);
}

TEST_CASE("a node whose workers run in a round that a server has left behind is told to stop them") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join_and_start({"c", "d"});
  job.rejoin("a", kept(0));
  CHECK(job.not_replaced == std::vector<std::string>{"a"});
  CHECK(job.resumed.empty());
}

TEST_CASE("a node that comes while a new server waits for a round causes a new one only if there is room") {
  const bool room = GENERATE(true, false);
  auto policy = two_of_three;
  if (!room) policy.max_nodes = 2;
  Job job(policy);
  job.rejoin("b", kept(1));
  job.join("c");
  job.rejoin("a", kept(0));
  CHECK(job.resumed.size() == (room ? 0 : 2));
  CHECK(job.proposals == (room ? 1 : 0));
}

TEST_CASE("a server that waits for a round and is stopped for a while judges by what has arrived meanwhile") {
  Job job(two_of_three);
  job.rejoin("b", kept(1));
  job.pass(1s);
  job.freeze(30s);
  job.pass(1ms);
  CHECK(job.proposals == 0);
  job.rejoin("a", kept(0));
  CHECK(job.resumed.size() == 2);
}

TEST_CASE("all nodes of a round learn from group rank 0 whether its workers can recover") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
  job.join_and_start({"a", "b"});
  job.say_recoverable("b", true);
  CHECK(job.able.empty());
  job.say_recoverable("a", true);
  CHECK(job.able == std::map<std::string, bool>{{"a", true}, {"b", true}});
  job.say_recoverable("a", false);
  CHECK(job.able == std::map<std::string, bool>{{"a", false}, {"b", false}});
}

// ---- flapping hosts

TEST_CASE("a host that joins and leaves repeatedly is refused after the fifth time, and accepted again after a pause") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 0s});
  job.join_and_start({"a"});
  const auto come = [&] {
    job.dropped.clear();
    job.join("b");
    job.ready_all();
    return job.dropped.empty();
  };
  for (int i = 0; i < 6; ++i) {
    REQUIRE(come());
    job.pass(1s);
    job.lose("b");
    job.ready_all();
  }
  const int proposals = job.proposals;
  CHECK_FALSE(come());
  CHECK_THAT(job.dropped["b"], Catch::Contains("host b has left run id 'none' 6 times in a row") &&
                                   Catch::Contains("stayed away for 600 s"));
  CHECK(job.proposals == proposals);
  CHECK(job.membership().restarts_used() == 0);
  job.pass(10min);
  CHECK(come());
}

TEST_CASE("a host whose nodes stay long enough may leave and join any number of times") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 0s});
  job.join_and_start({"a"});
  for (int i = 0; i < 10; ++i) {
    job.join("b");
    job.ready_all();
    job.pass(61s);
    job.lose("b");
    job.ready_all();
  }
  CHECK(job.dropped.empty());
}

TEST_CASE("a node that leaves when it has asked may come again any number of times") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 0s});
  job.join_and_start({"a"});
  for (int i = 0; i < 10; ++i) {
    job.join("b");
    job.ready_all();
    CHECK(job.ask_to_leave("b").empty());
    job.ready_all();
  }
  CHECK(job.dropped.empty());
}

TEST_CASE("new sessions of a node count as joining and leaving") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 0s});
  job.join_and_start({"a", "b"});
  for (int i = 0; i < 6; ++i) job.join("b");
  CHECK(job.dropped.empty());
  job.join("b");
  CHECK(job.dropped.contains("b"));
  CHECK(job.ranks() == Ranks{{"a", 0}});
}

TEST_CASE("after the job result the state does not change and no node joins") {
  Job job({});
  job.join_and_start({"a"});
  job.success("a");
  job.fail("a", {.exit_code = 5});
  CHECK(job.ended["a"].success);
  job.join("b");
  CHECK(job.refused.contains("b"));
  job.lose("a");
  CHECK(job.membership().empty());
}
