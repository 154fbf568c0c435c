// Rounds that lose and gain nodes while the workers of the others run.
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/membership_job.h"

using namespace ddprun;
using ddprun::testing::Job;
using namespace std::chrono_literals;

namespace {

// A job of 1 to `most` nodes whose workers have all announced that they can recover.
Job able_job(const std::vector<std::string>& hosts, int most = 4, int least = 1) {
  Job job({.min_nodes = least, .max_nodes = most, .max_restarts = 3, .last_call = 1s});
  for (const auto& host : hosts) job.join(host);
  job.pass(1s);
  job.ready_all();
  job.say_recoverable(hosts.front(), true);
  return job;
}

std::vector<std::string> nodes_of(const Round& round) {
  std::vector<std::string> ids;
  for (const auto& member : round.members) ids.push_back(member.node_id);
  return ids;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("a round goes on without a node that is lost: the same generation and store, other ranks") {
  auto job = able_job({"a", "b", "c"});
  job.lose("b");
  CHECK(job.proposals == 1);
  REQUIRE(job.changed.size() == 2);
  const auto& change = job.changed.at("c");
  CHECK(change.newcomers.empty());
  CHECK_THAT(change.reason, Catch::Contains("node b was lost: its connection closed (rank 1)"));
  CHECK(nodes_of(change.round) == Names{"a", "c"});
  CHECK(change.round.self == 1);
  CHECK(change.round.generation == 0);
  CHECK(change.round.group_generation == 1);
  CHECK(change.round.world_size == 2);
  CHECK(change.round.members.at(1).first_rank == 1);
  CHECK(change.round.store() == "10.0.0.1:4000");
  CHECK(change.round.restarts_used == 0);
  for (const auto& node : {"a", "c"}) job.success(node);
  CHECK(job.ended.at("a").success);
}

TEST_CASE("a round goes on without a node whose heartbeats stop, and without several at once") {
  auto job = able_job({"a", "b", "c", "d"});
  job.silence("b");
  job.silence("c");
  job.pass(10s);
  CHECK(job.proposals == 1);
  CHECK(job.dropped.size() == 2);
  CHECK(nodes_of(job.changed.at("d").round) == Names{"a", "d"});
  CHECK(job.changed.at("d").round.group_generation == 1);
}

TEST_CASE("the loss of too many nodes leads to another round") {
  auto job = able_job({"a", "b", "c"}, 4, 2);
  job.lose("b");
  CHECK(job.proposals == 1);
  job.lose("c");
  CHECK(job.proposals == 1);
  CHECK(job.membership().forming());
  job.join("d");
  job.pass(1s);
  CHECK(job.proposals == 2);
}

TEST_CASE("the node of the workers' store is lost: the next one by rank gets group rank 0 and serves another") {
  Job job({.min_nodes = 1, .max_nodes = 4, .max_restarts = 3, .last_call = 1s});
  for (const auto& host : {"a", "b", "c", "d"}) job.join(host, std::nullopt, 2);
  job.pass(1s);
  job.ready("a", 4001);
  job.ready("b", 0);  // it serves none
  job.ready("c", 4003);
  job.ready("d", 4004);
  job.say_recoverable("a", true);
  CHECK(job.started.at("b").store() == "10.0.0.1:4001");
  job.lose("a");
  CHECK(job.proposals == 1);
  REQUIRE(job.changed.size() == 3);
  const auto& round = job.changed.at("b").round;
  CHECK(nodes_of(round) == Names{"c", "b", "d"});
  CHECK(round.store() == "10.0.0.3:4003");
  CHECK(round.generation == 0);
  CHECK(round.group_generation == 1);
  CHECK(round.members.at(0).workers == Names{"4.0", "5.0"});
  CHECK(round.members.at(1).workers == Names{"2.0", "3.0"});
  SECTION("and the next one") {
    job.lose("c");
    CHECK(nodes_of(job.changed.at("b").round) == Names{"d", "b"});
    CHECK(job.changed.at("b").round.store() == "10.0.0.4:4004");
    SECTION("until none is left that serves one") {
      job.lose("d");
      CHECK(job.proposals == 2);
      CHECK(job.started.size() == 0);
    }
  }
  SECTION("which may be one that has come later") {
    job.join("e");
    const auto& joined = job.changed.at("e").round;
    CHECK(joined.members.at(3).workers == Names{"6.2"});
    CHECK(joined.members.at(0).workers == Names{"4.0", "5.0"});
    job.ready_to_join("e", 4005);
    for (const auto& host : {"c", "d"}) job.lose(host);
    CHECK(nodes_of(job.changed.at("b").round) == Names{"e", "b"});
    CHECK(job.changed.at("b").round.store() == "10.0.0.4:4005");
    CHECK(job.changed.at("b").round.members.at(0).workers == Names{"6.2"});
  }
  SECTION("which keeps the names of workers that were replaced") {
    job.lose_worker("d", 4, Survivors::run, 1);
    job.answer("c");
    REQUIRE(job.replaced["b"].size() == 1);
    job.lose("c");
    CHECK(job.changed.at("b").round.members.at(0).workers == Names{"6.0", "5.2"});
  }
}

TEST_CASE("a question to the lost node of the workers' store goes to the next one") {
  auto job = able_job({"a", "b", "c"});
  job.lose_worker("c", 2);
  CHECK(job.asked == Names{"a"});
  job.lose("a");
  CHECK(job.asked == Names{"a", "b"});
  job.answer("b");
  REQUIRE(job.replaced["b"].size() == 1);
  CHECK(job.replaced["b"].front().failures.front().group_rank == 1);
}

TEST_CASE("a spare gets no group rank 0 of a round that runs, nor does a node that asks for it") {
  Job job({.min_nodes = 2, .max_nodes = 2, .max_restarts = 3});
  for (const auto& host : {"a", "b"}) job.join(host);
  job.ready_all();
  job.say_recoverable("a", true);
  job.join("c", 0);
  job.lose("a");
  CHECK(job.proposals == 1);
  CHECK(nodes_of(job.changed.at("c").round) == Names{"b", "c"});
  CHECK(job.changed.at("c").newcomers == std::vector{1});
}

TEST_CASE("a node that leaves without having asked ends the round: its workers may have stopped all ranks") {
  auto job = able_job({"a", "b", "c"});
  job.leave(GENERATE("a", "c"));
  CHECK(job.changed.empty());
  CHECK(job.proposals == 2);
}

TEST_CASE("a node that asks leaves with the workers' store, which the next one by rank serves from then on") {
  auto job = able_job({"a", "b", "c"});
  CHECK(job.ask_to_leave("a").empty());
  CHECK(job.goes_on_without.at("a"));
  CHECK(job.proposals == 1);
  CHECK_FALSE(job.changed.contains("a"));
  const auto& change = job.changed.at("c");
  CHECK(change.in_order);
  CHECK(nodes_of(change.round) == Names{"b", "c"});
  CHECK(change.round.store() == "10.0.0.2:4000");
}

TEST_CASE("a round whose workers have not announced that they can recover does not go on with other nodes") {
  auto job = able_job({"a", "b", "c"});
  SECTION("any more") {
    job.say_recoverable("a", false);
  }
  SECTION("because it is another one than they did so in") {
    job.leave("a");
    job.ready_all();
  }
  const int before = job.proposals;
  job.lose("c");
  CHECK(job.changed.empty());
  CHECK(job.proposals == before + 1);
}

TEST_CASE("a node that joins below the maximum joins the round that runs") {
  auto job = able_job({"a", "b"});
  job.join("c", std::nullopt, 2);
  CHECK(job.proposals == 1);
  REQUIRE(job.changed.size() == 3);
  const auto& change = job.changed.at("c");
  CHECK(change.newcomers == std::vector{2});
  CHECK(change.joins(change.round.self));
  CHECK_FALSE(job.changed.at("a").joins(job.changed.at("a").round.self));
  CHECK(change.reason == "node c joined");
  CHECK(change.round.world_size == 4);
  CHECK(change.round.members.at(2).first_rank == 2);
  CHECK(change.round.group_generation == 1);
  job.join("d");
  CHECK(job.changed.at("d").round.group_generation == 2);
  job.join("e");
  CHECK_THAT(job.waiting.at("e"), Catch::Contains("this node is a spare"));
  CHECK_FALSE(job.changed.contains("e"));
}

TEST_CASE("a spare takes the place of a lost node after the others have gone on without it") {
  auto job = able_job({"a", "b", "c"}, 2);
  job.lose("b");
  CHECK(job.proposals == 1);
  const auto& change = job.changed.at("c");
  CHECK(nodes_of(change.round) == Names{"a", "c"});
  CHECK(change.newcomers == std::vector{1});
  CHECK(change.round.group_generation == 2);
  CHECK(change.reason == "a spare node takes part");
}

TEST_CASE("where the others are too few without it, they wait for the spare") {
  auto job = able_job({"a", "b", "c"}, 2, 2);
  job.pass(1s);
  Job spare({.min_nodes = 2, .max_nodes = 3, .max_restarts = 3, .last_call = 1s});
  for (const auto& host : {"a", "b"}) spare.join(host);
  spare.pass(1s);
  spare.ready_all();
  spare.join("c");
  spare.ready_all();
  spare.say_recoverable("a", true);
  spare.join("d");
  spare.lose("b");
  spare.lose("c");
  CHECK(spare.proposals == 2);
  CHECK(nodes_of(spare.changed.at("d").round) == Names{"a", "d"});
}

TEST_CASE("a node that opens a new session joins the round again, which has gone on without it") {
  auto job = able_job({"a", "b", "c"});
  job.join("b");
  CHECK(job.proposals == 1);
  CHECK(nodes_of(job.changed.at("c").round) == Names{"a", "c", "b"});
  CHECK(job.changed.at("b").joins(2));
  CHECK(job.changed.at("b").round.group_generation == 2);
  job.join("a");
  CHECK(job.proposals == 1);
  CHECK(nodes_of(job.changed.at("c").round) == Names{"c", "b", "a"});
  CHECK(job.changed.at("a").joins(2));
}

TEST_CASE("where ranks are fixed, a new session of the workers' store's node leads to another round") {
  const auto with_new_session = [](const std::string& node, int rank) {
    Job job({.min_nodes = 2, .max_nodes = 2, .fixed_ranks = true, .max_restarts = 3});
    job.join("a", 0);
    job.join("b", 1);
    job.ready_all();
    job.say_recoverable("a", true);
    job.join(node, rank);
    return job;
  };
  const auto other = with_new_session("b", 1);
  CHECK(other.proposals == 1);
  CHECK(nodes_of(other.changed.at("a").round) == Names{"a", "b"});
  CHECK(other.changed.at("b").joins(1));
  const auto first = with_new_session("a", 0);
  CHECK(first.changed.empty());
  CHECK(first.proposals == 2);
  CHECK(first.ranks() == std::map<std::string, int>{{"a", 0}, {"b", 1}});
}

TEST_CASE("a node that asks leaves, and learns whether the round goes on") {
  auto job = able_job({"a", "b", "c"});
  CHECK(job.ask_to_leave("b").empty());
  CHECK(job.goes_on_without.at("b"));
  CHECK(nodes_of(job.changed.at("c").round) == Names{"a", "c"});
  job.join("b");
  CHECK(job.changed.at("b").joins(job.changed.at("b").round.self));
  CHECK(job.proposals == 1);
}

TEST_CASE("a node that asks stays while no other one has the state of the training") {
  auto job = able_job({"a"});
  job.join("b");
  job.ready_to_join("b", 4000);
  CHECK(job.ask_to_leave("a") == "no other node has the state of the training yet");
  SECTION("until the newcomer has made a step") {
    job.train("b", 1);
    CHECK(job.ask_to_leave("a").empty());
    CHECK(job.goes_on_without.at("a"));
    CHECK(job.proposals == 1);
  }
  SECTION("until the newcomer's worker has said that it has got it") {
    job.tell_of_state("b", {"1.1"});  // not at the node of the workers' store
    CHECK_FALSE(job.ask_to_leave("a").empty());
    job.tell_of_state("a", {"1.1"});
    CHECK(job.ask_to_leave("a").empty());
    CHECK(job.proposals == 1);
  }
  SECTION("and its loss leads to another round") {
    job.lose("a");
    CHECK(job.proposals == 2);
  }
}

TEST_CASE("a node whose worker was replaced has the state again once that has made a step") {
  auto job = able_job({"a", "b"});
  job.train("b", 1);
  job.lose_worker("b", 1);
  job.answer("a");
  CHECK(job.ask_to_leave("a") == "no other node has the state of the training yet");
  job.train("b", 1);  // sent before the worker was killed
  CHECK(job.ask_to_leave("a") == "no other node has the state of the training yet");
  job.train("b", 2);
  CHECK(job.ask_to_leave("a").empty());
}

TEST_CASE("a node that asks leaves with the round where no other node can serve the workers' store") {
  Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 3, .last_call = 1s});
  for (const auto& host : {"a", "b"}) job.join(host);
  job.ready("a", 4001);
  job.ready("b", 0);
  job.say_recoverable("a", true);
  CHECK(job.ask_to_leave("a").empty());
  CHECK_FALSE(job.goes_on_without.at("a"));
  CHECK(job.proposals == 2);
}

TEST_CASE("failures whose replacement is not decided go on with their ranks, or with their node") {
  auto job = able_job({"a", "b", "c"});
  SECTION("of a node that stays") {
    job.lose_worker("c", 2);
    job.lose("b");
    job.answer("a");
    REQUIRE(job.replaced["c"].size() == 1);
    const auto& decided = job.replaced["c"].front();
    CHECK(decided.failures.front().rank == 1);
    CHECK(decided.failures.front().group_rank == 1);
    CHECK(decided.group_generation == 2);
    CHECK(decided.restarts_used == 1);
  }
  SECTION("of the node that is lost") {
    job.lose_worker("b", 1);
    job.lose("b");
    job.answer("a");
    CHECK(job.replaced.empty());
    job.lose_worker("c", 2, Survivors::run, 0);  // by a node that has not learnt of its rank yet
    job.answer("a");
    CHECK(job.replaced["a"].front().failures.front().rank == 1);
  }
  CHECK(job.proposals == 1);
}

TEST_CASE("a failure of a node that comes back is gone with its workers") {
  auto job = able_job({"a", "b"}, 2, 2);
  job.lose_worker("b", 1);
  job.join("b");
  CHECK(job.changed.at("b").joins(1));
  job.answer("a");
  CHECK(job.replaced.empty());
  CHECK(job.proposals == 1);
}

TEST_CASE("a change that the workers cannot follow leads to another round") {
  auto job = able_job({"a", "b", "c"});
  job.answer("a", "rank 1 cannot recover");  // nothing has changed
  CHECK(job.proposals == 1);
  job.lose("b");
  job.answer("c", "it is not asked");
  CHECK(job.proposals == 1);
  job.answer("a", "rank 1 cannot recover");
  CHECK(job.proposals == 2);
  CHECK_THAT(job.proposed.at("a").reason, Catch::Contains("cannot go on: rank 1 cannot recover"));
  job.ready_all();
  CHECK(job.running().generation == 1);
  CHECK(job.running().group_generation == 0);
}

TEST_CASE("a round that is about to end does not change") {
  auto job = able_job({"a", "b", "c"});
  SECTION("as a node has succeeded") {
    job.success("b");
  }
  SECTION("as a node has stopped its workers") {
    job.fail("b", {.rank = 1, .exit_code = 3});
  }
  job.lose("c");
  CHECK(job.changed.empty());
}

TEST_CASE("a round goes on at a new server in the generation of its group that all nodes report") {
  const auto former = [](int rank, std::uint64_t group_generation) {
    return FormerRound{.generation = 3,
                       .group_rank = rank,
                       .restarts_used = 1,
                       .nodes = 2,
                       .first = "a",
                       .master_addr = "10.0.0.1",
                       .master_port = 4000,
                       .group_generation = group_generation};
  };
  Job job({.min_nodes = 1, .max_nodes = 2, .max_restarts = 3, .last_call = 1s});
  job.rejoin("a", former(0, 5));
  SECTION("the same") {
    job.rejoin("b", former(1, 5));
    CHECK(job.resumed.size() == 2);
    CHECK(job.membership().running_round()->group_generation == 5);
    job.say_recoverable("a", true);
    job.lose("b");
    CHECK(job.changed.at("a").round.group_generation == 6);
    CHECK(job.changed.at("a").round.generation == 3);
  }
  SECTION("another one, as one of them has not got the last change") {
    job.rejoin("b", former(1, 4));
    CHECK(job.resumed.empty());
  }
}

// The server of a round of three nodes is lost with node a, and an elected one takes its place.
namespace {

FormerRound kept(int group_rank, const std::string& first, std::uint64_t group_generation = 0) {
  return {.generation = 4,
          .group_rank = group_rank,
          .restarts_used = 0,
          .nodes = 3,
          .first = first,
          .master_addr = "10.0.0.2",
          .master_port = 4000,
          .group_generation = group_generation};
}

}  // namespace

TEST_CASE("an elected server continues a round without the lost node, if the workers of the others run") {
  Job job(JobPolicy{.min_nodes = 2, .max_nodes = 3, .last_call = 30s});
  job.elected();
  job.rejoin("b", kept(0, "b", 1));
  job.rejoin("c", kept(2, "b", 1));
  CHECK(job.resumed.empty());
  job.continue_round();
  CHECK(job.proposals == 0);
  CHECK(job.resumed == std::map<std::string, std::int64_t>{{"b", 4}, {"c", 4}});
  REQUIRE(job.changed.size() == 2);
  const auto& change = job.changed.at("c");
  CHECK(change.newcomers.empty());
  CHECK(change.reason == "the server was lost");
  CHECK(change.round.generation == 4);
  CHECK(change.round.group_generation == 2);
  CHECK(change.round.world_size == 2);
  CHECK(change.round.self == 1);
  CHECK(change.round.master_addr == "10.0.0.2");
}

TEST_CASE("an elected server continues a round with another store of the workers, if theirs was at the lost node") {
  const auto serving = [](int group_rank, std::uint16_t store_port, const std::string& name) {
    auto former = kept(group_rank, "a", 1);
    former.store_port = store_port;
    former.workers = {name};
    return former;
  };
  Job job(JobPolicy{.min_nodes = 1, .max_nodes = 3, .last_call = 30s});
  job.elected();
  job.rejoin("c", serving(2, 4003, "2.0"));
  job.rejoin("b", serving(1, 4002, "1.1"));
  job.continue_round();
  CHECK(job.proposals == 0);
  CHECK(job.resumed.size() == 2);
  const auto& round = job.changed.at("c").round;
  CHECK(nodes_of(round) == Names{"b", "c"});
  CHECK(round.store() == "10.0.0.2:4002");
  CHECK(round.group_generation == 2);
  CHECK(round.members.at(0).workers == Names{"1.1"});
  CHECK(round.members.at(1).workers == Names{"2.0"});
  SECTION("and the same holds for the next loss") {
    job.lose("b");
    CHECK(job.changed.at("c").round.store() == "10.0.0.2:4003");
    CHECK(job.changed.at("c").round.group_generation == 3);
  }
}

TEST_CASE("an elected server forms another round at once, if the workers of the round cannot go on") {
  Job job(JobPolicy{.min_nodes = 2, .max_nodes = 3, .last_call = 30s});
  job.elected();
  SECTION("they have stopped") {
    job.rejoin("b", {.generation = 4, .group_rank = 1, .first = {}, .master_addr = {}});
    job.rejoin("c", {.generation = 4, .group_rank = 2, .first = {}, .master_addr = {}});
  }
  SECTION("their store was at the lost node, and no other can serve one") {
    job.rejoin("b", kept(1, "a"));
    job.rejoin("c", kept(2, "a"));
  }
  SECTION("they have not got the same changes") {
    job.rejoin("b", kept(0, "b", 1));
    job.rejoin("c", kept(2, "b", 2));
  }
  SECTION("those of one node are done, so they form no group with the others") {
    auto done = kept(2, "b", 1);
    done.done = true;
    job.rejoin("b", kept(0, "b", 1));
    job.rejoin("c", done);
  }
  CHECK(job.proposals == 0);
  job.continue_round();
  CHECK(job.resumed.empty());
  CHECK(job.proposals == 1);
  REQUIRE(job.proposed.size() == 2);
  CHECK(job.proposed.at("b").round.generation == 5);
  CHECK(job.proposed.at("b").reason == "the server was lost");
}

TEST_CASE("an elected server resumes a round of which no node is lost, though workers are done, and adds none to it") {
  Job job(JobPolicy{.min_nodes = 2, .max_nodes = 4, .last_call = 30s});
  job.elected();
  auto done = kept(1, "b", 1);
  done.done = true;
  job.rejoin("b", kept(0, "b", 1));
  job.rejoin("c", kept(2, "b", 1));
  job.rejoin("d", done);
  job.join("e");
  job.continue_round();
  CHECK(job.resumed.size() == 3);
  CHECK(job.changed.empty());
  CHECK(job.proposals == 0);
}

TEST_CASE("an elected server waits for more nodes, if the minimum is not there") {
  Job job(JobPolicy{.min_nodes = 3, .max_nodes = 3, .max_restarts = 1});
  job.elected();
  job.rejoin("b", {.generation = 4, .group_rank = 1, .first = {}, .master_addr = {}});
  job.rejoin("c", {.generation = 4, .group_rank = 2, .first = {}, .master_addr = {}});
  job.continue_round();
  CHECK(job.proposals == 0);
  CHECK_THAT(job.waiting.at("b"), Catch::Contains("the server was lost; 2 of 3 nodes are here"));
  job.join("d");
  CHECK(job.proposals == 1);
}
