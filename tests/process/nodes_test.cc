#include "tests/process/nodes.h"

#include <csignal>
#include <fstream>
#include <regex>
#include <set>

#include "common/host_port.h"
#include "tests/support/catch.h"

// Two agents on one machine, as two nodes of one job.
using namespace ddprun::testing;

namespace {

struct TwoNodes {
  Marker marker;
  TempDir folder;
  std::string endpoint = "127.0.0.1:" + std::to_string(free_port());

  Child start(const Words& verbs, Words options = {}) const {
    options.insert(options.begin(), {"--nnodes=2", "--nproc_per_node=2", "--rdzv_endpoint=" + endpoint});
    return Child(command(options, verbs), marker.variables());
  }
  std::string file(const std::string& name) const { return (folder / name).string(); }
  bool there(const std::string& name) const { return std::filesystem::exists(folder / name); }
};

std::string value_of(const std::string& out, const std::string& name) {
  const auto at = out.find(name + "=");
  if (at == std::string::npos) return "";
  return out.substr(at + name.size() + 1, out.find('\n', at) - at - name.size() - 1);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("two agents with one endpoint form one job, with c10d and static") {
  const std::string backend = GENERATE("c10d", "static");
  CAPTURE(backend);
  const TwoNodes nodes;
  const Words first = {"--rdzv_backend=" + backend, "--node_rank=0"};
  const Words second = {"--rdzv_backend=" + backend, "--node_rank=1"};
  auto a = nodes.start({"env"}, first);
  auto b = nodes.start({"env"}, second);
  const auto from_a = a.wait();
  const auto from_b = b.wait();
  CHECK(from_a.code == 0);
  CHECK(from_b.code == 0);
  CHECK(value_of(from_a.out, "GROUP_WORLD_SIZE") == "2");
  CHECK(value_of(from_a.out, "MASTER_PORT") == value_of(from_b.out, "MASTER_PORT"));
  std::set<std::string> ranks;
  for (const auto& line : lines_of(from_a.out + from_b.out))
    if (contains(line, "]:RANK=")) ranks.insert(line.substr(line.find('=') + 1));
  CHECK(ranks == std::set<std::string>{"0", "1", "2", "3"});
}

TEST_CASE("a failure on one node stops both, and both end with the root cause's code and summary") {
  const TwoNodes nodes;
  const Words verbs = {"if-rank=0",
                       "touch=" + nodes.file("0"),
                       "end-if",
                       "if-rank=2",
                       "wait-file=" + nodes.file("0"),
                       "err=why\\n",
                       "exit=9",
                       "end-if",
                       "pause"};
  auto a = nodes.start(verbs);
  auto b = nodes.start(verbs);
  for (auto* node : {&a, &b}) {
    const auto result = node->wait();
    CHECK(result.code == 9);
    // The job-wide root cause is the first error that each node logs.
    const auto first = result.err.find("[ddprun] error: ");
    REQUIRE(first != std::string::npos);
    CHECK(result.err.find("[ddprun] error: rank 2 (local rank 0, pid ") == first);
    CHECK(contains(result.err, "failed: exit code 9\n"));
    CHECK(contains(result.err, "  rank      : 2 (local_rank: 0)\n"));
    CHECK(contains(result.err, "The end of rank 2's standard error:\n  why\n"));
  }
  CHECK(nodes.marker.processes() == 0);
}

TEST_CASE("a usage error of a worker is one line with the host on each node, and exit code 2") {
  const TwoNodes nodes;
  const Words verbs = {
      "if-rank=2", "error-file={\"message\": {\"message\": \"no such key\", \"extraInfo\": {\"usage_error\": true}}}",
      "exit=2", "end-if", "pause"};
  const Words quiet{"--max_restarts=1"};
  auto a = nodes.start(verbs, quiet);
  auto b = nodes.start(verbs, quiet);
  for (auto* node : {&a, &b}) {
    const auto result = node->wait();
    CHECK(result.code == 2);
    const auto first = result.err.find("[ddprun] error: ");
    REQUIRE(first != std::string::npos);
    CHECK(result.err.substr(first) ==
          "[ddprun] error: no such key (rank 2 on host " + ddprun::local_host_name() + ")\n");
  }
  CHECK(nodes.marker.processes() == 0);
}

TEST_CASE("where worker 0 serves the store, each round has a new port, the same on both nodes") {
  const TwoNodes nodes;
  const Words verbs = {"env", "if-rank=3", "if-attempt=0", "exit=9", "end-if", "if-attempt=0", "pause", "end-if"};
  auto a = nodes.start(verbs, {"--max_restarts=1", "--no_agent_store"});
  auto b = nodes.start(verbs, {"--max_restarts=1", "--no_agent_store"});
  const auto from_a = a.wait(), from_b = b.wait();
  CHECK(from_a.code == 0);
  CHECK(from_b.code == 0);
  CHECK(value_of(from_a.out, "TORCHELASTIC_USE_AGENT_STORE") == "False");
  std::set<std::string> ports;
  for (const auto& line : lines_of(from_a.out + from_b.out))
    if (contains(line, "]:MASTER_PORT=")) ports.insert(line.substr(line.find('=') + 1));
  CHECK(ports.size() == 2);
}

TEST_CASE("a failure on one node restarts both nodes and counts once") {
  const TwoNodes nodes;
  const Words verbs = {"env", "if-rank=3", "if-attempt=0", "exit=9", "end-if", "if-attempt=0", "pause", "end-if"};
  auto a = nodes.start(verbs, {"--max_restarts=1"});
  auto b = nodes.start(verbs, {"--max_restarts=1"});
  for (auto* node : {&a, &b}) {
    const auto result = node->wait();
    CHECK(result.code == 0);
    CHECK(contains(result.out, "TORCHELASTIC_RESTART_COUNT=1\n"));
    CHECK(contains(result.err, "restart 1 of 1"));
  }
}

TEST_CASE("the node that serves the endpoint stays until the last worker of other nodes has ended, rank 0 included") {
  const TwoNodes nodes;
  // Ranks 0 and 1 are slow, on the node that does not serve the endpoint.
  const Words verbs = {"if-rank=2", "touch=" + nodes.file("quick"),       "end-if",
                       "if-rank=0", "wait-file=" + nodes.file("release"), "end-if",
                       "env"};
  auto host = nodes.start(verbs, {"--node_rank=1", "--rdzv_conf=is_host=true"});
  auto other = nodes.start(verbs, {"--node_rank=0", "--rdzv_conf=is_host=false"});
  host.wait_until([&] { return nodes.there("quick") && nodes.marker.processes() == 7; },
                  "one worker with two agents and their guardians");
  std::ofstream{nodes.file("release")};
  for (auto* node : {&host, &other}) CHECK(node->wait().code == 0);
}

TEST_CASE("SIGKILL of one agent ends its workers and the job") {
  const TwoNodes nodes;
  const Words verbs = {"touch=" + nodes.file("${local_rank}"), "pause"};
  const Words quick = {"--rdzv_conf=join_timeout=5"};
  auto a = nodes.start(verbs, quick);
  auto b = nodes.start(verbs, quick);
  b.wait_until([&] { return nodes.marker.processes() == 10; }, "four workers, two agents and their guardians");
  b.signal(SIGKILL);
  CHECK(a.wait().code == 1);
  a.wait_until([&] { return nodes.marker.processes() == 0; }, "end of every process");
}

TEST_CASE("a static node whose node rank 0 is missing says how long it waited") {
  const TwoNodes nodes;
  auto child = nodes.start({"env"}, {"--rdzv_backend=static", "--node_rank=1", "--rdzv_conf=timeout=3"});
  const auto result = child.wait();
  CHECK(result.code == 1);
  CHECK(std::regex_search(result.err, std::regex("no store at " + nodes.endpoint + " within [0-9.]+ s;")));
  CHECK(contains(result.err, "Connection refused"));
}
