#include <set>

#include "common/host_port.h"
#include "rendezvous/store/local_socket.h"
#include "tests/process/nodes.h"
#include "tests/support/catch.h"
#include "tests/support/listeners.h"
#include "tests/support/raw_socket.h"

// The store that the workers of a round connect to.
using namespace ddprun::testing;

TEST_CASE("after a restart workers find no keys of the previous attempt, with c10d and static") {
  const std::string backend = GENERATE("c10d", "static");
  CAPTURE(backend);
  const auto result =
      run_child({DDPRUN_PROGRAM, "--nproc_per_node=2", "--max_restarts=1", "--rdzv_backend=" + backend, "--node_rank=0",
                 "--master_addr=127.0.0.1", "--master_port=" + std::to_string(free_port()), STALE_KEYS_PROGRAM});
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(result.out.find("attempt 0: no stale key\n") != std::string::npos);
  CHECK(result.out.find("attempt 1: no stale key\n") != std::string::npos);
}

TEST_CASE("a job of one node listens on loopback only, whatever host name its endpoint has") {
  const Nodes files;
  const Words named{"--rdzv_backend=c10d", "--rdzv_endpoint=" + ddprun::local_host_name() + ":0"};
  const Words options = GENERATE_COPY(Words{"--standalone"}, Words{}, named);
  CAPTURE(options);
  Words words{"--nproc_per_node=1"};
  words.insert(words.end(), options.begin(), options.end());
  Node node(command(words, {"env", "wait-file=" + (files.folder / "done").string()}), {});
  node.wait_for_round(1);
  CHECK(node.variable("MASTER_ADDR") == "127.0.0.1");
  const auto addresses = listening_addresses(node.pid());
  // The rendezvous server listens at the address of its endpoint.
  const std::set<std::string> expected =
      options == named ? std::set<std::string>{"127.0.0.1", "::"} : std::set<std::string>{"127.0.0.1"};
  CHECK(addresses.size() == 2);
  CHECK(std::set<std::string>(addresses.begin(), addresses.end()) == expected);
  files.finish();
  CHECK(node.wait().code == 0);
}

TEST_CASE("if the endpoint is a loopback address the workers' store listens on loopback only") {
  Nodes job{.options = {"--nnodes=2"}};
  auto host = job.host();
  auto guest = job.guest();
  for (auto* node : {&host, &guest}) node->wait_for_round(2);
  for (auto* node : {&host, &guest})
    for (const auto& address : listening_addresses(node->pid())) CHECK(address == "127.0.0.1");
  job.finish();
  for (auto* node : {&host, &guest}) CHECK(node->wait().code == 0);
}

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

std::uint16_t store_port(const Node& node) {
  return static_cast<std::uint16_t>(std::stoi(node.variable("MASTER_PORT")));
}

// Returns the path of the socket that the node's workers have been told of; empty if they have not.
std::string store_socket(const Node& node) {
  return ddprun::rendezvous::store_socket_path(node.variable("DDPRUN_STORE_SOCKET"), store_port(node));
}

}  // namespace

TEST_CASE("C++ workers reach a store of their host's agent over its Unix socket, after a restart as well") {
  Child job({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--max_restarts=1", STALE_KEYS_PROGRAM},
            {{"LOGLEVEL", "DEBUG"}});
  const auto result = job.wait();
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Catch::Contains("attempt 0: no stale key\n") && Catch::Contains("attempt 1: no stale key\n"));
  CHECK(count(result.err, "over the agent's socket") >= 4);
  CHECK(count(result.err, "by the owner of its socket") == 0);  // the agent does not use the network either
}

TEST_CASE("a process of the user that is none of the job is refused at the agent's socket") {
  const bool admitted = GENERATE(false, true);
  Nodes job{.options = {"--nnodes=1", "--nproc_per_node=1"}};
  auto node = job.host(admitted ? "plain_clients=user" : "plain_clients=job");
  node.wait_for_round(1);
  auto client = RawSocket(ddprun::rendezvous::connect_local(store_socket(node), store_port(node)));
  client.send(ddprun::rendezvous::ValidateRequest{});
  if (admitted) {
    client.settle();
  } else {
    CHECK(client.closed_by_server());
    node.wait_until([&] { return node.has_logged("it is none of the job's"); }, "a line about the refusal");
  }
  job.finish();
  CHECK(node.wait().code == 0);
}

TEST_CASE("the agent's socket leads to the store of the requested port only") {
  Nodes job{.options = {"--nnodes=1", "--nproc_per_node=1"}};
  auto node = job.host("plain_clients=user");
  node.wait_for_round(1);
  const auto other_port = static_cast<std::uint16_t>(store_port(node) ^ 1);
  auto client = RawSocket(ddprun::rendezvous::connect_local(store_socket(node), other_port));
  CHECK(client.closed_by_server());
  job.finish();
  CHECK(node.wait().code == 0);
}

TEST_CASE("only workers of the node that serves the store are told of its socket") {
  Nodes job{.options = {"--nnodes=2"}};
  auto host = job.host();
  auto guest = job.guest();
  for (auto* node : {&host, &guest}) node->wait_for_round(2);
  const auto& server = host.number("GROUP_RANK") == 0 ? host : guest;
  const auto& other = &server == &host ? guest : host;
  CHECK_THAT(store_socket(server), Catch::Contains("/" + std::to_string(server.pid()) + "-"));
  CHECK(store_socket(other).empty());
  job.finish();
  for (auto* node : {&host, &guest}) CHECK(node->wait().code == 0);
}

TEST_CASE("two jobs at the same time need no port option") {
  Nodes files;
  const Words job{"--nproc_per_node=1"};
  const Words verbs{"env", "wait-file=" + (files.folder / "done").string()};
  Node a(command(job, verbs), {});
  Node b(command(job, verbs), {});
  for (auto* node : {&a, &b}) node->wait_for_round(1);
  CHECK(a.variable("MASTER_PORT") != b.variable("MASTER_PORT"));
  files.finish();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
}

TEST_CASE("two jobs of different ids share one endpoint") {
  Nodes jobs{.options = {"--nnodes=2"}};
  auto a = jobs.host("", {"--rdzv_id=first"});
  auto b = jobs.guest("", {"--rdzv_id=first"});
  auto c = jobs.guest("", {"--rdzv_id=second"});
  auto d = jobs.guest("", {"--rdzv_id=second"});
  for (auto* node : {&a, &b, &c, &d}) node->wait_for_round(2);
  CHECK(a.variable("MASTER_PORT") == b.variable("MASTER_PORT"));
  CHECK(c.variable("MASTER_PORT") == d.variable("MASTER_PORT"));
  CHECK(a.variable("MASTER_PORT") != c.variable("MASTER_PORT"));
  CHECK(d.variable("TORCHELASTIC_RUN_ID") == "second");
  jobs.finish();
  for (auto* node : {&a, &b, &c, &d}) CHECK(node->wait().code == 0);
}

TEST_CASE("the node that serves the workers' store counts the connections of all nodes' workers") {
  const Nodes nodes{.options = {"--nnodes=2"}};
  Words words{"--nnodes=2", "--rdzv_endpoint=" + nodes.endpoint, "--rdzv_conf=is_host=true,last_call_timeout=1"};
  words = command(words, {"env", "pause"});
  words.insert(words.begin(), {"/bin/sh", "-c", "ulimit -n 40 && exec \"$@\"", "sh"});
  Child host(words, nodes.marker.variables());
  auto guest = nodes.guest("", {"--nproc_per_node=8", "--node_rank=1", "--rdzv_backend=c10d"});
  const auto result = host.wait(std::chrono::seconds(60));
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Contains("for 1 worker here and 8 elsewhere, and the limit is 40 (ulimit -n)"));
  CHECK(guest.wait().code == 1);
}

TEST_CASE("a rendezvous server that can accept nobody ends its job within the join timeout") {
  const auto port = free_port();
  Words words =
      command({"--nnodes=1", "--rdzv_endpoint=127.0.0.1:" + std::to_string(port), "--rdzv_conf=join_timeout=1"},
              {"out=runs\n", "pause"});
  words.insert(words.begin(), {"/bin/sh", "-c", "ulimit -n 40 && exec \"$@\"", "sh"});
  Child job(words);
  job.wait_for_out("runs");
  std::vector<RawSocket> idle;
  for (int i = 0; i < 40; ++i) idle.push_back(RawSocket::validated(port));
  const auto result = job.wait(std::chrono::seconds(60));
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Contains("has accepted no connection for 1 s: Too many open files"));
}
