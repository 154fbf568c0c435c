#include "rendezvous/etcd/job_node.h"

#include <algorithm>
#include <memory>

#include "tests/support/catch.h"
#include "tests/unit/rendezvous/etcd_member.h"

// Nodes of one job with an etcd in memory.
using namespace ddprun;
using namespace ddprun::testing;
using namespace std::chrono_literals;

namespace {

JobPolicy nodes(int least, int most, int max_restarts = 0) {
  return {.run_id = "job",
          .min_nodes = least,
          .max_nodes = most,
          .max_restarts = max_restarts,
          .last_call = 0ms,
          .join_timeout = 600s};
}

struct Job {
  EtcdMoment now{Membership::Time(1h), 1'000'000};
  FakeEtcd etcd;
  std::vector<std::unique_ptr<Member>> members;

  Member& add(const std::string& name, const JobPolicy& policy, const std::string& session = "") {
    return *members.emplace_back(std::make_unique<Member>(etcd, name, policy, session));
  }
  // Runs until there are no more events.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& member : members) moved = member->watch_step(now) || member->write_step(now) || moved;
    }
  }
  void pass(std::chrono::milliseconds time) {
    now.steady += time;
    now.wall_us += std::chrono::microseconds(time).count();
    for (auto& member : members) member->node.tick(now);
    settle();
  }
  void die(Member& member) {
    const auto lease = member.lease;
    std::erase_if(members, [&](const auto& one) { return one.get() == &member; });
    etcd.end_lease(lease);
    settle();
  }
};

}  // namespace

TEST_CASE("nodes of an etcd job form a round, run it and leave no keys") {
  Job job;
  auto& a = job.add("a", nodes(2, 2));
  auto& b = job.add("b", nodes(2, 2));
  job.settle();
  REQUIRE(a.running);
  REQUIRE(b.running);
  CHECK(a.running->generation == 0);
  CHECK(a.running->self == 0);
  CHECK(b.running->self == 1);
  CHECK(b.running->master_addr == "10.0.0.1");
  CHECK(b.running->master_port == 29501);
  CHECK(a.reason == "first round");
  CHECK(a.node.leads() != b.node.leads());
  a.node.success(job.now, 0);
  b.node.success(job.now, 0);
  job.settle();
  REQUIRE(a.job_result);
  REQUIRE(b.job_result);
  CHECK(a.job_result->success);
  a.node.finish();
  b.node.finish();
  job.settle();
  CHECK(a.node.gone());
  CHECK(b.node.gone());
  CHECK(job.etcd.range("").empty());
}

TEST_CASE("when the leader of an etcd job is lost another node takes over with its state") {
  Job job;
  auto& a = job.add("a", nodes(1, 3, 1));
  auto& b = job.add("b", nodes(1, 3, 1));
  auto& c = job.add("c", nodes(1, 3, 1));
  job.settle();
  REQUIRE(c.running);
  REQUIRE(a.node.leads());
  // One restart is used up under the first leader.
  b.node.failure(job.now, c.running->generation, {{.rank = 1, .host = "b", .exit_code = 3}});
  job.settle();
  job.pass(1s);
  const auto generation = c.running->generation;
  CHECK(c.reason == "rank 1 (local rank 0) on host b failed: exit code 3; restart 1 of 1");
  const int rank_of_c = c.running->self;

  job.die(a);
  CHECK((b.node.leads() || c.node.leads()));
  REQUIRE(c.running);
  CHECK(c.running->generation == generation + 1);
  CHECK(c.running->restarts_used == 1);
  CHECK(c.running->members.size() == 2);
  CHECK(c.reason == "node a was lost: its lease ended (rank 0)");
  CHECK(rank_of_c == 2);
  CHECK(c.running->self == 0);  // its old rank is beyond the new size, so it gets the free one
  // No restarts are left: the next failure ends the job.
  c.node.failure(job.now, c.running->generation, {{.rank = 0, .host = "c", .exit_code = 4}});
  job.settle();
  job.pass(1s);
  REQUIRE(b.job_result);
  CHECK(b.job_result->exit_code == 4);
}

TEST_CASE("a node that comes to a full etcd job is refused once all members have answered, or replaces a lost one") {
  Job job;
  auto& a = job.add("a", nodes(2, 2, 1));
  auto& b = job.add("b", nodes(2, 2, 1));
  job.settle();
  REQUIRE(b.running);
  SECTION("all are there") {
    auto& c = job.add("c", nodes(2, 2, 1));
    job.settle();
    job.pass(1s);
    CHECK_THAT(c.contact_lost, Catch::Contains("another --rdzv_id"));
    CHECK(a.running->generation == 0);
  }
  SECTION("one is lost") {
    const auto lost = std::find_if(job.members.begin(), job.members.end(), [](const auto& m) { return m->id == "b"; });
    const auto frozen = std::move(*lost);
    job.members.erase(lost);
    auto& c = job.add("c", nodes(2, 2, 1));
    job.settle();
    job.pass(3s);
    CHECK(c.contact_lost.empty());
    job.etcd.end_lease(frozen->lease);
    job.settle();
    REQUIRE(c.running);
    CHECK(c.running->generation == 1);
  }
}

TEST_CASE("a failure of an etcd job is judged once all other nodes have answered") {
  Job job;
  auto& a = job.add("a", nodes(1, 2));
  auto& b = job.add("b", nodes(1, 2));
  job.settle();
  REQUIRE(a.running);
  REQUIRE(b.running);
  const auto generation = a.running->generation;
  a.node.failure(job.now, generation, {{.rank = 0, .host = "a", .exit_code = 3}});

  SECTION("the other one is alive: the failure is the root cause") {
    job.settle();
    job.pass(1s);
    REQUIRE(a.job_result);
    REQUIRE(b.job_result);
    CHECK(b.job_result->exit_code == 3);
  }
  SECTION("the other one is dead, which is detected later: a change of membership") {
    auto dead = std::move(job.members[1]);
    job.members.pop_back();
    job.settle();
    for (int i = 0; i < 60; ++i) job.pass(100ms);
    CHECK(!a.job_result);
    job.etcd.end_lease(dead->lease);
    job.settle();
    REQUIRE(a.running);
    CHECK(a.running->generation == generation + 1);
    CHECK(a.running->restarts_used == 0);
  }
}

TEST_CASE("a failure caused by the loss of a node is not the cause of an etcd job's end") {
  Job job;
  auto& a = job.add("a", nodes(2, 2));
  job.add("b", nodes(2, 2));
  job.settle();
  REQUIRE(a.running);
  auto dead = std::move(job.members[1]);
  job.members.pop_back();
  a.node.failure(job.now, a.running->generation, {{.rank = 0, .host = "a", .exit_code = 3}});
  job.settle();
  job.pass(1s);
  CHECK(!a.job_result);
  job.etcd.end_lease(dead->lease);
  job.settle();
  REQUIRE(a.job_result);
  CHECK(a.job_result->exit_code == 1);
  CHECK(a.job_result->reason == "node b was lost: its lease ended (rank 1)");
  CHECK(a.job_result->failures.size() == 1);
}

TEST_CASE("the next leader of an etcd job knows which node was preempted") {
  Job job;
  auto& a = job.add("a", nodes(1, 2));
  auto& b = job.add("b", nodes(1, 2));
  job.settle();
  REQUIRE(b.running);
  REQUIRE(a.node.leads());
  a.node.preempted(job.now, b.running->generation);
  job.settle();
  job.die(a);
  REQUIRE(b.node.leads());
  CHECK(!b.job_result);
  b.node.success(job.now, b.running->generation);
  job.settle();
  REQUIRE(b.job_result);
  CHECK(b.job_result->exit_code == 75);
}

TEST_CASE("any node of an etcd job may stop the job") {
  Job job;
  auto& a = job.add("a", nodes(2, 3));
  auto& b = job.add("b", nodes(2, 3));
  job.settle();
  job.pass(1s);
  REQUIRE(b.running);
  REQUIRE(a.node.leads());
  b.node.request_stop("somebody");
  job.settle();
  for (const auto* node : {&a, &b}) {
    REQUIRE(node->job_result);
    CHECK(node->job_result->exit_code == 143);
    CHECK(node->job_result->reason == "stopped by somebody");
  }
}

TEST_CASE("a node that rejoins with its id has a new session") {
  Job job;
  job.add("a", nodes(1, 2));
  auto& b = job.add("b", nodes(1, 2));
  job.settle();
  REQUIRE(b.running);
  const auto generation = b.running->generation;
  // Its old key still exists when the node writes it again.
  job.members.pop_back();
  auto& again = job.add("b", nodes(1, 2), "another session");
  job.settle();
  REQUIRE(again.running);
  CHECK(again.running->generation == generation + 1);
  CHECK(again.running->self == 1);
}

TEST_CASE("an etcd job refuses other options by name, and a record of another version") {
  Job job;
  job.add("a", nodes(2, 2));
  job.settle();
  auto& b = job.add("b", nodes(2, 3));
  job.settle();
  CHECK_THAT(b.contact_lost, Catch::Contains("--nnodes 2:3 where the job has 2"));
  b.node.finish();
  job.settle();
  CHECK(b.node.gone());
  const auto lease = job.etcd.grant();
  job.etcd.apply({.success = {{.kind = EtcdOperation::Kind::put,
                               .key = job_keys.node("c"),
                               .value = R"({"version": 99, "session": "of c"})",
                               .lease = EtcdOperation::Lease::node}}},
                 lease, 0);
  job.settle();
  const auto announcement = parse_job_announcement("announcement", job.etcd.find(job_keys.announcement())->value);
  REQUIRE(announcement.rejected.contains("of c"));
  CHECK_THAT(announcement.rejected.at("of c").text, Catch::Contains("version 99"));
}

TEST_CASE("a run id is free again once its job has ended") {
  Job job;
  auto& a = job.add("a", nodes(1, 1));
  job.settle();
  REQUIRE(a.running);
  a.node.success(job.now, 0);
  job.settle();
  REQUIRE(a.job_result);
  auto& b = job.add("b", nodes(1, 1, 2));  // it is of the next job
  job.settle();
  CHECK_THAT(b.last_wait, Catch::Contains("by a job that is ending"));
  CHECK(!b.running);
  SECTION("its nodes leave in order") {
    a.node.finish();
    job.settle();
  }
  SECTION("its last node dies") {
    job.die(a);
  }
  REQUIRE(b.running);
  CHECK(b.running->generation == 0);
}

TEST_CASE("the keys of an abandoned etcd job do not affect the next one") {
  Job job;
  auto& a = job.add("a", nodes(1, 2, 1));
  job.settle();
  REQUIRE(a.running);
  job.die(a);
  CHECK(job.etcd.find(job_keys.state()));
  auto& b = job.add("b", nodes(1, 1));
  job.settle();
  REQUIRE(b.running);
  CHECK(b.running->generation == 0);
  CHECK(b.contact_lost.empty());
}

TEST_CASE("a leader that has lost its key cannot write") {
  Job job;
  auto& a = job.add("a", nodes(1, 3));
  job.settle();
  REQUIRE(a.node.leads());
  auto& b = job.add("b", nodes(1, 3));
  b.watch_step(job.now);
  b.write_step(job.now);
  while (a.watch_step(job.now)) continue;
  auto late = a.node.next_txn(job.now);  // it admits b
  REQUIRE(late);
  job.etcd.end_lease(a.lease);
  const auto state = job.etcd.find(job_keys.state())->value;
  const auto result = job.etcd.apply(*late, a.lease, 0);
  CHECK(!result.succeeded);
  CHECK(job.etcd.find(job_keys.state())->value == state);
  a.node.answered(result);
  CHECK(!a.node.leads());
}
