#include <csignal>

#include "tests/multihost/hosts.h"

// Hosts that join, leave, are disconnected and rejoin; their names and addresses.
using namespace ddprun::testing;

TEST_CASE("a host joins late, one leaves, one loses its link and rejoins when the link is restored") {
  need_hosts();
  Hosts hosts(4);
  const auto options = hosts.meeting({"--nnodes=2:4", "--rdzv_conf=last_call_timeout=1,store_timeout=120"});
  auto a = hosts.start(0, options);
  auto b = hosts.start(1, options);
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  auto c = hosts.start(2, options);
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3);
  auto d = hosts.start(3, options);
  for (auto* node : {&a, &b, &c, &d}) node->wait_for_round(4);

  const auto four = a.generation();
  d.signal(SIGTERM);
  CHECK(d.wait().code == 128 + SIGTERM);
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3, four + 1);

  const auto three = a.generation();
  hosts.net.link_down(2);
  for (auto* node : {&a, &b}) node->wait_for_round(2, three + 1);
  a.wait_for_err("no heartbeat for 5 s");
  c.wait_for_err("no heartbeat for 5 s; trying to rejoin");
  const auto two = a.generation();
  hosts.net.link_up(2);
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3, two + 1);
  CHECK(a.generation() == c.generation());
  hosts.finish();
  for (auto* node : {&a, &b, &c}) CHECK(node->wait().code == 0);
}

TEST_CASE("hosts with names that nobody can resolve meet at the endpoint's address and use addresses") {
  need_hosts();
  const Hosts hosts(2);
  const auto options = hosts.meeting({"--nnodes=2"});
  auto a = hosts.start(hosts.net.enter_as("nowhere-a.invalid", 0), options);
  auto b = hosts.start(hosts.net.enter_as("nowhere-b.invalid", 1), options);
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  const auto master = a.variable("GROUP_RANK") == "0" ? 0 : 1;
  CHECK(a.variable("MASTER_ADDR") == hosts.net.address(master));
  CHECK(b.variable("MASTER_ADDR") == hosts.net.address(master));
  hosts.finish();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
}

TEST_CASE("new hosts are ranked in natural order of their names, node2 before node10") {
  need_hosts();
  const Hosts hosts(3);
  const auto options = hosts.meeting({"--nnodes=3"});
  auto ten = hosts.start(hosts.net.enter_as("node10", 0), options);
  auto two = hosts.start(hosts.net.enter_as("node2", 1), options);
  auto one = hosts.start(hosts.net.enter_as("node1", 2), options);
  for (auto* node : {&one, &two, &ten}) node->wait_for_round(3);
  CHECK(one.variable("GROUP_RANK") == "0");
  CHECK(two.variable("GROUP_RANK") == "1");
  CHECK(ten.variable("GROUP_RANK") == "2");
  CHECK(ten.variable("MASTER_ADDR") == hosts.net.address(2));
  hosts.finish();
  for (auto* node : {&one, &two, &ten}) CHECK(node->wait().code == 0);
}

TEST_CASE("two jobs side by side on the same two hosts share an endpoint") {
  need_hosts();
  const Hosts hosts(2);
  const auto first = hosts.meeting({"--nnodes=2", "--rdzv_id=first"});
  const auto second = hosts.meeting({"--nnodes=2", "--rdzv_id=second"});
  auto a = hosts.start(0, first);
  auto b = hosts.start(1, first);
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  auto c = hosts.start(0, second);
  auto d = hosts.start(1, second);
  for (auto* node : {&c, &d}) node->wait_for_round(2);
  const auto store = [](const Node& node) { return node.variable("MASTER_ADDR") + ":" + node.variable("MASTER_PORT"); };
  CHECK(store(a) == store(b));
  CHECK(store(c) == store(d));
  CHECK(store(a) != store(c));
  hosts.finish();
  for (auto* node : {&a, &b, &c, &d}) CHECK(node->wait().code == 0);
}

TEST_CASE("an IPv6 endpoint") {
  need_hosts();
  const Hosts hosts(2);
  const Words options{"--nproc_per_node=1", "--nnodes=2", "--rdzv_endpoint=[" + hosts.net.address6(0) + "]:29400"};
  auto a = hosts.start(0, options);
  auto b = hosts.start(1, options);
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  const auto master = a.variable("GROUP_RANK") == "0" ? 0 : 1;
  CHECK(b.variable("MASTER_ADDR") == hosts.net.address6(master));
  hosts.finish();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
}

TEST_CASE("two agents of one host that name no endpoint meet at the default port") {
  need_hosts();
  const Hosts hosts(1);
  auto a = hosts.start(0, {"--nproc_per_node=1", "--nnodes=2"});
  auto b = hosts.start(0, {"--nproc_per_node=1", "--nnodes=2"});
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  CHECK((a.has_logged("waiting at 127.0.0.1:29400") && b.has_logged("waiting at 127.0.0.1:29400")));
  CHECK(a.variable("MASTER_ADDR") == "127.0.0.1");
  hosts.finish();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
}
