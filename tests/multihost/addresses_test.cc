#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <thread>

#include "common/unique_fd.h"
#include "tests/process/launch.h"
#include "tests/support/catch.h"
#include "tests/support/netns.h"
#include "tests/support/temp_dir.h"

// Tests of names that no name server resolves, and addresses that cannot be reached.
using namespace ddprun::testing;
using ddprun::UniqueFd;

namespace {

void need_hosts() {
  if (const auto why = NetnsHosts::why_not(); !why.empty()) SKIP(why);
}

// The hosts have files of their own, too.
void need_hosts_with_mounts() {
  need_hosts();
  const auto probe = run_child({"/usr/bin/unshare", "--mount", "/bin/true"});
  if (probe.code != 0) SKIP("no mount namespace here: " + probe.err);
}

// A host whose name server receives questions and never answers.
class SilentNameServer {
 public:
  SilentNameServer() {
    std::thread([this] { listen(); }).join();  // a thread of its own, since it changes its network
    REQUIRE(socket_);
    std::ofstream(folder_ / "resolv.conf") << "nameserver " << hosts_.address(0) << "\noptions timeout:30 attempts:5\n";
  }

  Words on_host(const Words& command) const {
    Words words = hosts_.enter(0);
    for (const auto& word :
         {std::string("/usr/bin/unshare"), std::string("--mount"), std::string("/bin/sh"), std::string("-c"),
          std::string("mount --bind \"$0\" /etc/resolv.conf && exec \"$@\""), (folder_ / "resolv.conf").string()})
      words.push_back(word);
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  void wait_for_question() const {
    pollfd entry{socket_.get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 20'000) == 1);
  }

 private:
  void listen() {
    const UniqueFd network(::open(hosts_.network(0).c_str(), O_RDONLY | O_CLOEXEC));
    if (::setns(network.get(), CLONE_NEWNET) != 0) return;
    UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) socket_ = std::move(socket);
  }

  NetnsHosts hosts_{1};
  TempDir folder_;
  UniqueFd socket_;
};

Words guest_of(const std::string& backend, const std::string& timeout) {
  Words options{"--nnodes=2", "--rdzv_backend=" + backend, "--rdzv_endpoint=no-such.example:29400",
                "--rdzv_conf=join_timeout=" + timeout};
  if (backend == "static") options.back() = "--rdzv_conf=timeout=" + timeout;
  if (backend == "static") options.emplace_back("--node_rank=1");
  return command(options, {"env"});
}

}  // namespace

TEST_CASE("a name server that does not answer is blamed when the join timeout has passed") {
  need_hosts_with_mounts();
  const auto backend = GENERATE("c10d", "static");
  CAPTURE(backend);
  const SilentNameServer server;
  const auto result = Child(server.on_host(guest_of(backend, "2"))).wait(std::chrono::seconds(60));
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Catch::Contains("cannot resolve host 'no-such.example': the name server does not answer"));
}

TEST_CASE("a signal ends ddprun while it waits for a name server") {
  need_hosts_with_mounts();
  const auto backend = GENERATE("c10d", "static", "etcd");
  CAPTURE(backend);
  const SilentNameServer server;
  Child agent(server.on_host(guest_of(backend, "600")));
  server.wait_for_question();
  agent.signal(SIGINT);
  CHECK(agent.wait(std::chrono::seconds(60)).code == 128 + SIGINT);
}

TEST_CASE("a --local_addr at which nobody reaches the workers' store is reported on every node") {
  need_hosts();
  const NetnsHosts hosts(2);
  const auto start = [&](int host, const Words& more) {
    Words options{"--nnodes=2", "--rdzv_endpoint=" + hosts.address(0) + ":29400", "--local_addr=192.0.2.1"};
    options.insert(options.end(), more.begin(), more.end());
    Words words = hosts.enter(host);
    for (const auto& word : command(options, {"pause"})) words.push_back(word);
    return Child(words);
  };
  auto first = start(0, {}), second = start(1, {});
  for (auto* node : {&first, &second}) {
    node->wait_for_err("the workers' store at 192.0.2.1:");
    node->wait_for_err("--local_addr");
  }
  first.signal(SIGTERM);
  CHECK(first.wait().code == 128 + SIGTERM);
  second.wait();
}

TEST_CASE("a --local_addr that is not of this host is reported in a job of one node") {
  need_hosts();
  const NetnsHosts hosts(1);
  Words words = hosts.enter(0);
  for (const auto& word : command({"--standalone", "--local_addr=192.0.2.1"}, {"pause"})) words.push_back(word);
  Child job(words);
  job.wait_for_err("so its workers wait for it: it is this node's --local_addr");
  job.signal(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
}
