#include <arpa/inet.h>
#include <csignal>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>

#include "common/error.h"
#include "common/unique_fd.h"
#include "launcher/chaos/link_cut.h"
#include "tests/multihost/hosts.h"
#include "tests/support/host_network.h"

// Network links that --chaos cuts, on hosts that are network namespaces.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

// An address of the port that the tests send to.
class Port {
 public:
  explicit Port(const std::string& host) {
    address_.sin_family = AF_INET;
    address_.sin_port = htons(4711);
    REQUIRE(::inet_pton(AF_INET, host.c_str(), &address_.sin_addr) == 1);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t size = sizeof(sockaddr_in);

 private:
  sockaddr_in address_{};
};

UniqueFd udp_socket() {
  return UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

// Sends a byte from this thread's network namespace. Returns whether the kernel accepted it.
bool send_to(const std::string& host, char byte = 'x') {
  const auto socket = udp_socket();
  return ::sendto(socket.get(), &byte, 1, 0, Port(host).get(), Port::size) == 1;
}

// Receives what is sent to an address of this thread's network namespace.
class Receiver {
 public:
  explicit Receiver(const std::string& host) : socket_(udp_socket()) {
    REQUIRE(::bind(socket_.get(), Port(host).get(), Port::size) == 0);
  }
  // Waits for the next byte.
  char receive() const {
    char byte = 0;
    CHECK(::recv(socket_.get(), &byte, 1, 0) == 1);
    return byte;
  }

 private:
  UniqueFd socket_;
};

// Returns what ip(8) prints of a host's links, addresses and routes.
std::string configuration(const Hosts& hosts, int host) {
  std::string all;
  for (const auto* what : {"-o link show", "-o address show", "route show", "-6 route show"}) {
    const auto shown = Child(Hosts::behind(hosts.net.enter(host), {"/bin/sh", "-c", std::string("ip ") + what}))
                           .wait(std::chrono::seconds(60));
    CHECK(shown.code == 0);
    all += shown.out;
  }
  return all;
}

// Skips the test where the kernel cannot cut links.
void need_cuts() {
  need_hosts();
  const Hosts hosts(1);
  const InNetwork network(hosts.net.network(0));
  try {
    check_links_can_be_cut();
  } catch (const Error& error) {
    const std::string why = error.what();
    if (why.find("needs a kernel with nftables") != std::string::npos) SKIP(why);
    throw;
  }
}

}  // namespace

TEST_CASE("no packet passes the links of a host that are cut, in either direction, while its loopback works") {
  need_cuts();
  const Hosts hosts(2);
  const auto own = hosts.net.address(1);
  std::optional<InNetwork> network(std::in_place, hosts.net.network(1));
  const Receiver from_outside(own);
  CHECK(send_to(hosts.net.address(0)));
  std::optional<LinkCut> cut(std::in_place);
  {
    const Receiver from_loopback("127.0.0.1");
    CHECK_FALSE(send_to(hosts.net.address(0)));
    CHECK(send_to("127.0.0.1", 'l'));
    CHECK(from_loopback.receive() == 'l');
    CHECK(send_to(own, 'o'));  // it takes the way over the loopback interface
    CHECK(from_outside.receive() == 'o');
  }
  {
    const InNetwork other(hosts.net.network(0));
    CHECK(send_to(own, 'a'));
  }
  cut.reset();
  CHECK(send_to(hosts.net.address(0)));
  {
    const InNetwork other(hosts.net.network(0));
    CHECK(send_to(own, 'b'));
  }
  CHECK(from_outside.receive() == 'b');
}

TEST_CASE("agents of one host cut its links independently of each other") {
  need_cuts();
  const Hosts hosts(2);
  const InNetwork network(hosts.net.network(1));
  std::optional<LinkCut> first(std::in_place);
  std::optional<LinkCut> second(std::in_place);
  first.reset();
  CHECK_FALSE(send_to(hosts.net.address(0)));
  second.reset();
  CHECK(send_to(hosts.net.address(0)));
}

TEST_CASE("a node whose links --chaos cuts is lost, and joins again when they work") {
  need_cuts();
  const Hosts hosts(2);
  const auto options =
      hosts.meeting({"--nnodes=1:2", "--rdzv_conf=last_call_timeout=1,keep_alive_max_attempt=2,store_timeout=120"});
  auto chaotic = options;
  chaotic.emplace_back("--chaos=cut:20s/5s");
  auto a = hosts.start(0, options);
  a.wait_for_round(1);
  auto b = hosts.start(1, chaotic);
  for (auto* node : {&a, &b}) node->wait_for_round(2);
  const auto two = a.generation();
  b.wait_for_err("--chaos cut the network links of this node for 5 s");
  a.wait_for_err("no heartbeat for 2 s, frozen or cut off");
  b.wait_for_err("no heartbeat for 2 s; trying to rejoin");
  b.wait_for_err("--chaos: the network links of this node work again");
  for (auto* node : {&a, &b}) node->wait_for_round(2, two + 2);
  b.signal(SIGTERM);
  CHECK(b.wait().code == 128 + SIGTERM);
  hosts.finish();
  CHECK(a.wait().code == 0);
}

TEST_CASE("the links of a node work as before when its ddprun ends while they are cut") {
  need_cuts();
  const int signal = GENERATE(SIGTERM, SIGKILL);
  Hosts hosts(2);
  const auto before = configuration(hosts, 1);
  auto node = hosts.start(1, {"--standalone", "--nproc_per_node=1", "--chaos=cut:20ms/1h"});
  node.wait_for_err("--chaos cut the network links of this node for 3600 s");
  const InNetwork network(hosts.net.network(1));
  CHECK_FALSE(send_to(hosts.net.address(0)));
  CHECK(configuration(hosts, 1) == before);
  node.signal(signal);
  const auto result = node.wait();
  CHECK((signal == SIGKILL ? result.signal_number == SIGKILL : result.code == 128 + SIGTERM));
  CHECK(send_to(hosts.net.address(0)));
  CHECK(configuration(hosts, 1) == before);
}

TEST_CASE("without CAP_NET_ADMIN a node whose links are to be cut is refused with what to do") {
  need_cuts();
  Hosts hosts(1);
  auto enter = hosts.net.enter(0);
  for (const auto* word : {"/usr/bin/setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"})
    enter.emplace_back(word);
  const auto result = hosts.start(enter, {"--chaos=kill:1h,cut:1h"}).wait();
  CHECK(result.code == 2);
  CHECK(result.err ==
        "[ddprun] error: --chaos: cut needs the capability CAP_NET_ADMIN in its network namespace: run ddprun as root "
        "of the namespace, in a container with --cap-add=NET_ADMIN\n");
}

TEST_CASE("the links of the machine's initial network namespace are never cut") {
  if (!std::filesystem::exists("/proc/sys/net/core/netdev_budget")) SKIP("this is not the machine's network namespace");
  const auto result = Child(command({"--standalone", "--chaos=cut:1h"}, {"exit=0"})).wait(std::chrono::seconds(60));
  CHECK(result.code == 2);
  CHECK(result.err ==
        "[ddprun] error: --chaos: cut needs a network namespace of its own, but this node is in the machine's, whose "
        "links are never cut: run it in a container, or by ip netns exec\n");
  CHECK_THROWS_AS(LinkCut(), Error);
}
