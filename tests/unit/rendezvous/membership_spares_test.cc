// Nodes that stand by for one that is lost (JobPolicy::spares).
#include "tests/support/catch.h"
#include "tests/unit/rendezvous/membership_job.h"

using namespace ddprun;
using ddprun::testing::Job;
using namespace std::chrono_literals;

namespace {

using Names = std::vector<std::string>;

// A job of the nodes a and b whose workers can recover, and of so many spares.
Job job_with(int spares, int least = 2) {
  Job job({.min_nodes = least, .max_nodes = 2, .spares = spares, .last_call = 1s});
  for (const auto* host : {"a", "b"}) job.join(host);
  job.ready_all();
  job.say_recoverable("a", true);
  return job;
}

void want_standby(Job& job) {
  for (const auto* host : {"a", "b"}) job.want_standby(host);
}

Names nodes_of(const Round& round) {
  Names ids;
  for (const auto& member : round.members) ids.push_back(member.node_id);
  return ids;
}

JobStatus::Node status_of(const Job& job, const std::string& host) {
  const auto status = job.status();
  const auto node = std::ranges::find(status.nodes, host, &JobStatus::Node::host);
  REQUIRE(node != status.nodes.end());
  return *node;
}

}  // namespace

TEST_CASE("a node beyond a fixed number waits as a spare, and closes, changes and ends no round") {
  auto job = job_with(1);
  job.join("c");
  job.pass(60s);
  CHECK(job.dropped.empty());
  CHECK(job.changed.empty());
  CHECK(job.proposals == 1);
  CHECK_THAT(job.waiting.at("c"), Catch::Contains("has its 2 nodes; this node is a spare"));
  CHECK(status_of(job, "c").state == "spare");
  job.lose("c");
  job.join("d");
  CHECK(job.changed.empty());
  CHECK(job.proposals == 1);
  for (const auto* node : {"a", "b"}) job.success(node);
  CHECK(job.ended.at("d").success);
}

TEST_CASE("spares of a job that is still forming do not take part beyond its number of nodes") {
  Job job({.min_nodes = 2, .max_nodes = 2, .spares = 2, .last_call = 1s});
  for (const auto* host : {"a", "b", "c", "d"}) job.join(host);
  CHECK(job.proposals == 1);
  CHECK(nodes_of(job.proposed.at("a").round) == Names{"a", "b"});
}

TEST_CASE("as many spares as were asked for stand by, once all nodes of the round want it") {
  auto job = job_with(2);
  for (const auto* host : {"c", "d", "e"}) job.join(host);
  job.want_standby("a");
  CHECK(job.standby_asked.empty());
  job.want_standby("b");
  CHECK(job.standby_asked == Names{"c", "d"});
  want_standby(job);
  CHECK(job.standby_asked.size() == 2);
  job.leave("c");
  CHECK(job.standby_asked == Names{"c", "d", "e"});
  job.join("f");
  CHECK(job.standby_asked.size() == 3);
  CHECK_FALSE(status_of(job, "d").warm);
  job.stand_by("d", true);
  CHECK(status_of(job, "d").warm);
  CHECK(status_of(job, "d").state == "spare");
  job.stand_by("d", false);
  CHECK_FALSE(status_of(job, "d").warm);
  job.stand_by("f", true);  // it was not asked
  CHECK_FALSE(status_of(job, "f").warm);
}

TEST_CASE("no spare stands by without spares in the policy") {
  Job job({.min_nodes = 1, .max_nodes = 2, .last_call = 1s});
  for (const auto* host : {"a", "b", "c"}) job.join(host);
  job.ready_all();
  want_standby(job);
  CHECK(job.standby_asked.empty());
}

TEST_CASE("a spare that stands by takes the place of a lost node before one that came earlier") {
  auto job = job_with(2);
  for (const auto* host : {"c", "d"}) job.join(host);
  want_standby(job);
  job.stand_by("d", true);
  job.lose("b");
  CHECK(job.proposals == 1);
  REQUIRE(job.changed.size() == 2);
  const auto& change = job.changed.at("a");
  CHECK(nodes_of(change.round) == Names{"a", "d"});
  CHECK(change.newcomers == std::vector{1});
  CHECK(change.round.restarts_used == 0);
  CHECK(status_of(job, "d").state == "member");
  CHECK_FALSE(status_of(job, "d").warm);
  job.join("e");
  CHECK(job.standby_asked == Names{"c", "d"});  // the workers of the newcomer have made no step yet
  job.want_standby("d");
  CHECK(job.standby_asked == Names{"c", "d", "e"});
}

TEST_CASE("a node keeps its rank where a spare that stood by had it before, once their round is over") {
  Job job({.min_nodes = 3, .max_nodes = 3, .spares = 1, .last_call = 1s});
  for (const auto* host : {"a", "b", "c"}) job.join(host);
  job.ready_all();
  job.say_recoverable("a", true);
  job.join("d");
  job.lose("c");
  CHECK(nodes_of(job.changed.at("a").round) == Names{"a", "b", "d"});
  job.join("c");
  for (const auto* host : {"a", "b", "d"}) job.want_standby(host);
  job.stand_by("c", true);
  REQUIRE(status_of(job, "c").warm);
  job.success("a");
  job.lose("a");
  job.leave("b");
  REQUIRE(job.membership().forming());
  job.join("e");
  CHECK(job.ranks().at("d") == 2);
}

TEST_CASE("a fixed number of nodes waits for another one if its last spare is used") {
  auto job = job_with(1);
  job.lose("b");
  CHECK(job.ended.empty());
  CHECK(job.membership().forming());
  job.join("c");
  CHECK(job.proposals == 2);
}

TEST_CASE("a spare that opens a new session is asked again") {
  auto job = job_with(1);
  job.join("c");
  want_standby(job);
  job.stand_by("c", true);
  job.join("c");
  CHECK(job.standby_asked == Names{"c", "c"});
  CHECK_FALSE(status_of(job, "c").warm);
}

TEST_CASE("a node with another number of spares is refused") {
  auto job = job_with(1);
  job.join("c", JobPolicy{.min_nodes = 2, .max_nodes = 2, .spares = 2, .last_call = 1s});
  CHECK_THAT(job.refused.at("c"), Catch::Contains("node c asks for --spares 2 where the job has 1"));
}
