#include <csignal>
#include <set>

#include "tests/process/nodes.h"
#include "tests/support/catch.h"

// The behaviour of the other agents when the agent that serves the endpoint ends.
using namespace ddprun::testing;

TEST_CASE("when the store's host is killed and started again, the others rejoin and the job continues") {
  Nodes job{.options = {"--nnodes=2", "--max_restarts=1"}};
  auto host = job.host("store_timeout=60");
  auto b = job.guest("store_timeout=60");
  for (auto* node : {&host, &b}) node->wait_for_round(2);
  const auto rank_of_b = b.variable("RANK");
  host.signal(SIGKILL);
  host.wait();
  b.wait_for_err("lost the rendezvous server at " + job.endpoint);
  auto again = job.host("store_timeout=60");
  for (auto* node : {&again, &b}) node->wait_for_round(2, 1);
  CHECK(again.generation() == 1);
  CHECK(b.generation() == 1);
  CHECK(b.variable("RANK") == rank_of_b);
  CHECK(b.variable("MASTER_PORT") == again.variable("MASTER_PORT"));
  job.finish();
  CHECK(again.wait().code == 0);
  CHECK(b.wait().code == 0);
}

TEST_CASE("when the store's host does not come back, the others end with an error that says so") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto host = job.host();
  auto b = job.guest("store_timeout=1");
  for (auto* node : {&host, &b}) node->wait_for_round(2);
  host.signal(SIGKILL);
  const auto result = b.wait();
  CHECK(result.code == 1);
  CHECK(result.err.find("lost the rendezvous server at " + job.endpoint) != std::string::npos);
  CHECK(result.err.find("did not come back within 1 s (--rdzv_conf=store_timeout)") != std::string::npos);
  host.wait();
  b.wait_until([&] { return job.marker.processes() == 0; }, "end of every process");
}

TEST_CASE("another agent on the same machine takes over the endpoint") {
  Nodes job{.options = {"--nnodes=1:3"}};
  auto host = job.host();
  host.wait_for_round(1);
  auto b = job.start("");  // it is on this machine, so it may serve the endpoint
  auto c = job.guest();
  for (auto* node : {&host, &b, &c}) node->wait_for_round(3);
  const auto generation = b.generation();
  host.signal(SIGKILL);
  for (auto* node : {&b, &c}) node->wait_for_round(2, generation + 1);
  job.finish();
  CHECK(b.wait().code == 0);
  CHECK(c.wait().code == 0);
}

TEST_CASE("an agent that is stopped while it serves the endpoint notifies the agents that wait there") {
  Nodes job{.options = {"--nnodes=3"}};
  auto host = job.host();
  auto b = job.guest();
  b.wait_for_err("2 of 3 nodes are here");
  host.signal(SIGTERM);
  CHECK(host.wait().code == 128 + SIGTERM);
  const auto result = b.wait();
  CHECK(result.code == 1);
  CHECK(result.err.find("the rendezvous server shuts down: stopped by SIGTERM on host ") != std::string::npos);
}

TEST_CASE("a store's host that was frozen continues with the same nodes") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto host = job.host("store_timeout=60");
  auto b = job.guest("store_timeout=60");
  for (auto* node : {&host, &b}) node->wait_for_round(2);
  const auto generation = b.generation();
  host.signal(SIGSTOP);
  b.wait_for_err("no heartbeat for 5 s; trying to rejoin for 60 s");
  host.signal(SIGCONT);
  for (auto* node : {&host, &b}) node->wait_for_round(2, generation + 1);
  job.finish();
  CHECK(host.wait().code == 0);
  CHECK(b.wait().code == 0);
}

TEST_CASE("agents are notified at once when the store's host is stopped, and wait for the next one") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto host = job.host();
  auto b = job.guest("store_timeout=60");
  for (auto* node : {&host, &b}) node->wait_for_round(2);
  const auto generation = b.generation();
  host.signal(SIGTERM);
  b.wait_for_err("it shuts down (stopped by SIGTERM on host ");
  CHECK(host.wait().code == 128 + SIGTERM);
  auto again = job.host();
  for (auto* node : {&again, &b}) node->wait_for_round(2, generation + 1);
  job.finish();
  CHECK(again.wait().code == 0);
  CHECK(b.wait().code == 0);
}

// Two jobs at one endpoint; the agent of the first serves it.
struct TwoJobs {
  Nodes first{.options = {"--nnodes=1", "--rdzv_id=first"}};
  Nodes second{.endpoint = first.endpoint, .options = {"--nnodes=1", "--rdzv_id=second"}};
  Node host = first.host();
  Node guest = start_guest();

  // The first job is over, and its agent serves the second one.
  void end_first() {
    guest.wait_for_round(1);
    first.finish();
    host.wait_for_err("the job of this ddprun has ended; it still serves port");
    CHECK(host.has_logged("for the job of run id 'second'"));
  }

 private:
  Node start_guest() {
    host.wait_for_round(1);
    return second.guest();
  }
};

TEST_CASE("an agent whose job has ended serves the endpoint for another job until that ends, and says so") {
  TwoJobs jobs;
  jobs.end_first();
  jobs.second.finish();
  CHECK(jobs.guest.wait().code == 0);
  CHECK(jobs.host.wait().code == 0);
}

TEST_CASE("an agent that serves the endpoint for another job alone tells it of a signal and exits with 128 + n") {
  TwoJobs jobs;
  jobs.end_first();
  jobs.host.signal(SIGTERM);
  CHECK(jobs.host.wait().code == 128 + SIGTERM);
  const auto result = jobs.guest.wait();
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Contains("the rendezvous server shuts down: stopped by SIGTERM on host"));
}
