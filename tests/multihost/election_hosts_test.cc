#include <csignal>

#include "tests/multihost/hosts.h"

// The host of the rendezvous server is cut off, or its agent is lost; nobody shares its machine.
using namespace ddprun::testing;

namespace {

const std::string elected = "this node serves the rendezvous from now on";

Words three_hosts(const Hosts& hosts) {
  return hosts.meeting({"--nnodes=2:3", "--rdzv_conf=last_call_timeout=1,store_timeout=120"});
}

}  // namespace

TEST_CASE("the agent at the endpoint is killed: another host serves the job, and a new agent there joins it") {
  need_hosts();
  const Hosts hosts(3);
  const auto options = three_hosts(hosts);
  auto a = hosts.start(0, options);
  auto b = hosts.start(1, options);
  auto c = hosts.start(2, options);
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3);
  const auto three = b.generation();
  a.signal(SIGKILL);
  a.wait();
  for (auto* node : {&b, &c}) node->wait_for_round(2, three + 1);
  CHECK(b.has_logged(elected) != c.has_logged(elected));
  const auto two = b.generation();
  auto again = hosts.start(0, options);
  for (auto* node : {&again, &b, &c}) node->wait_for_round(3, two + 1);
  hosts.finish();
  for (auto* node : {&again, &b, &c}) CHECK(node->wait().code == 0);
}

TEST_CASE("the host of the server is cut off: the other side trains, and it joins that when the link is restored") {
  need_hosts();
  Hosts hosts(3);
  const auto options = three_hosts(hosts);
  auto a = hosts.start(0, options);
  auto b = hosts.start(1, options);
  auto c = hosts.start(2, options);
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3);
  const auto three = b.generation();
  hosts.net.link_down(0);
  a.wait_for_err("it stops deciding");
  a.wait_for_err("the rendezvous server has lost contact with half of the nodes or more");
  for (auto* node : {&b, &c}) node->wait_for_round(2, three + 1);
  CHECK(a.generation() == three);
  const auto two = b.generation();
  hosts.net.link_up(0);
  for (auto* node : {&a, &b, &c}) node->wait_for_round(3, two + 1);
  hosts.finish();
  for (auto* node : {&a, &b, &c}) CHECK(node->wait().code == 0);
}
