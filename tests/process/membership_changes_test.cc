#include <csignal>
#include <set>

#include "tests/process/nodes.h"
#include "tests/support/catch.h"

// Nodes that join and leave while a job runs.
using namespace ddprun::testing;

TEST_CASE("nodes join late, leave by a signal and are killed: the others continue, and no restart is counted") {
  Nodes job{.options = {"--nnodes=1:3", "--max_restarts=0"}};
  auto a = job.host();
  a.wait_for_round(1);
  auto b = job.guest();
  a.wait_for_round(2);
  b.wait_for_round(2);
  const auto rank_of_a = a.variable("GROUP_RANK");
  auto c = job.guest();
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3);
  CHECK(a.variable("GROUP_RANK") == rank_of_a);
  const auto three = a.generation();
  CHECK((b.generation() == three && c.generation() == three));

  b.signal(SIGTERM);
  CHECK(b.wait().code == 128 + SIGTERM);
  for (auto* node : {&a, &c}) node->wait_for_round(2, three + 1);
  CHECK(a.variable("GROUP_RANK") == rank_of_a);
  CHECK(std::set<std::string>{a.variable("RANK"), c.variable("RANK")} == std::set<std::string>{"0", "1"});
  a.wait_for_err("left: stopped by SIGTERM");

  c.signal(SIGKILL);
  a.wait_for_round(1, three + 2);
  a.wait_for_err("was lost: its connection closed");
  job.finish();
  CHECK(a.wait().code == 0);
  CHECK_FALSE(a.has_logged("restart 1"));
}

TEST_CASE("a spare beyond the maximum waits and replaces a lost node at once") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto a = job.host();
  auto b = job.guest();
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  auto spare = job.guest();
  spare.wait_for_err("is a spare and joins when one of them leaves");
  const auto rank_of_a = a.variable("RANK");
  const auto rank_of_b = b.variable("RANK");
  const int next = a.generation() + 1;
  b.signal(SIGKILL);
  spare.wait_for_round(2, next);
  a.wait_for_round(2, next);
  CHECK(a.variable("RANK") == rank_of_a);
  CHECK(spare.variable("RANK") == rank_of_b);
  CHECK(spare.generation() == next);
  job.finish();
  CHECK(a.wait().code == 0);
  const auto result = spare.wait();
  CHECK(result.code == 0);
  CHECK_THAT(result.err, !Catch::Contains("none of its workers was started"));
}

TEST_CASE("a spare that never ran says so in its last line and ends with the job's exit code") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto a = job.host();
  auto b = job.guest();
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  auto spare = job.guest();
  spare.wait_for_err("is a spare and joins when one of them leaves");
  job.finish();
  for (auto* node : {&a, &b}) CHECK(node->wait().code == 0);
  const auto result = spare.wait();
  CHECK(result.code == 0);
  CHECK(result.out.empty());
  CHECK_THAT(lines_of(result.err).back(), Catch::Contains("this node was a spare: none of its workers was started"));
}

TEST_CASE("a second job with the run id of a running one is refused at once with exit code 1 and the way out") {
  const auto restarts = GENERATE("--max_restarts=0", "--max_restarts=1");
  Nodes job{.options = {"--nnodes=1", restarts}};
  auto first = job.host();
  first.wait_for_round(1);
  const auto second = job.guest().wait();
  CHECK(second.code == 1);
  CHECK(second.out.empty());
  CHECK_THAT(second.err, Catch::Contains("run id 'none' is in use by a job that has its 1 node") &&
                             Catch::Contains("another --rdzv_id"));
  job.finish();
  CHECK(first.wait().code == 0);
  CHECK_FALSE(first.has_logged("new round"));
}

TEST_CASE("with restarts a node replaces a frozen one of a fixed number that has not been missed yet") {
  Nodes job{.options = {"--nnodes=2", "--max_restarts=1"}};
  auto a = job.host();
  auto b = job.guest();
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  b.signal(SIGSTOP);
  auto replacement = job.guest();
  replacement.wait_for_round(2, 1);
  a.wait_for_round(2, 1);
  b.signal(SIGKILL);
  job.finish();
  for (auto* node : {&a, &replacement}) CHECK(node->wait().code == 0);
}

TEST_CASE("with c10d a node gets the rank that it requests with --node_rank if that rank is free") {
  Nodes job{.options = {"--nnodes=3", "--rdzv_backend=c10d"}};
  auto a = job.host("", {"--node_rank=2"});
  auto b = job.guest("", {"--node_rank=0"});
  auto c = job.guest("", {"--node_rank=0"});
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3);
  CHECK(a.variable("GROUP_RANK") == "2");
  CHECK(std::set<std::string>{b.variable("GROUP_RANK"), c.variable("GROUP_RANK")} == std::set<std::string>{"0", "1"});
  job.finish();
  for (auto* node : {&a, &b, &c}) CHECK(node->wait().code == 0);
}

TEST_CASE("a node that becomes group rank 0 in a later round serves the workers' store, and its address is logged") {
  Nodes job{.options = {"--nnodes=1:2", "--rdzv_backend=c10d"}};
  auto b = job.guest("", {"--node_rank=0"});
  auto a = job.host("", {"--node_rank=1"});
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  // The first node to join may have been rank 0 of a round of one node.
  const auto first = a.variable("GROUP_RANK") == "0" ? "a" : "b";
  CAPTURE(first);
  const auto port = a.variable("MASTER_PORT");
  CHECK(b.variable("MASTER_PORT") == port);
  const auto generation = a.generation();
  b.signal(SIGKILL);
  a.wait_for_round(1, generation + 1);
  CHECK(a.variable("GROUP_RANK") == "0");
  CHECK(a.variable("MASTER_PORT") != port);
  a.wait_for_err("the workers' store of generation " + std::to_string(generation + 1) +
                 " is at 127.0.0.1:" + a.variable("MASTER_PORT") + ", no longer at 127.0.0.1:" + port);
  job.finish();
  CHECK(a.wait().code == 0);
}

TEST_CASE("a frozen agent is lost within the bound, and rejoins by itself when it is continued") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto a = job.host();
  auto b = job.guest();
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  const auto generation = a.generation();
  b.signal(SIGSTOP);
  a.wait_for_round(1, generation + 1);
  a.wait_for_err("no heartbeat for 5 s");
  b.signal(SIGCONT);
  a.wait_for_round(2, generation + 2);
  b.wait_for_round(2, generation + 2);
  b.wait_for_err("trying to rejoin");
  job.finish();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
}

TEST_CASE("a node that joins and leaves repeatedly is refused, and the job continues without it") {
  Nodes job{.options = {"--nnodes=1:2", "--max_restarts=0"}};
  auto a = job.host();
  a.wait_for_round(1);
  const std::string refusal = "times in a row, each within 60 s of joining";
  int accepted = 0;
  for (bool refused = false; !refused; ++accepted) {
    REQUIRE(accepted < 15);  // five times for each of the two nodes that this host has at a time
    auto b = job.guest();
    b.wait_until([&] { return b.number("WORLD_SIZE") == 2 || b.has_logged(refusal); }, "round or refusal");
    refused = b.has_logged(refusal);
    if (refused) {
      CHECK(b.wait().code == 1);
      continue;
    }
    const auto generation = b.generation();
    b.signal(SIGKILL);
    a.wait_for_round(1, generation + 1);
  }
  CHECK(accepted > 5);
  job.finish();
  CHECK(a.wait().code == 0);
}

TEST_CASE("nodes with different arguments form a job, and each names the difference in one line") {
  const Nodes job;
  const Words options{"--nnodes=2", "--rdzv_endpoint=" + job.endpoint};
  Child a(command(options, {"out=1\n"})), b(command(options, {"out=2\n"}));
  for (const auto& result : {a.wait(Node::default_timeout), b.wait(Node::default_timeout)}) {
    CHECK(result.code == 0);
    CHECK_THAT(result.err, Catch::Contains("another command than") && Catch::Contains("argument 1 is 'out="));
  }
}
