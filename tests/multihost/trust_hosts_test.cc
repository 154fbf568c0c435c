// The clients that a job of two hosts admits.
#include <fstream>
#include <sstream>
#include <sys/stat.h>

#include "tests/multihost/hosts.h"

using namespace ddprun::testing;

namespace {

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

struct TrustedHosts : Hosts {
  TrustedHosts() : Hosts(2) {}

  std::string token_file(const std::string& name, char digit) const {
    const auto file = (folder / name).string();
    std::ofstream(file) << std::string(64, digit) << '\n';
    ::chmod(file.c_str(), 0600);
    return file;
  }
  // Starts an agent with one worker, ddprun-store-client with these arguments.
  Words agent(int host, const std::string& conf, const Words& client) const {
    Words words{DDPRUN_PROGRAM,        "--nnodes=2",  "--nproc_per_node=1", "--rdzv_endpoint=" + endpoint(),
                "--rdzv_conf=" + conf, "--no_python", STORE_CLIENT};
    words.insert(words.end(), client.begin(), client.end());
    return behind(net.enter(host), words);
  }
};

struct Both {
  Child::Result a, b;
  std::string out() const { return a.out + b.out; }
  std::string all() const { return a.out + b.out + a.err + b.err; }
};

Both run(const Words& first, const Words& second, const Variables& variables = {}) {
  Child a(first, variables), b(second, variables);
  auto one = a.wait(), other = b.wait();
  return {std::move(one), std::move(other)};
}

}  // namespace

TEST_CASE("clients without the token are admitted on both hosts for the user of the job alone") {
  need_hosts();
  const TrustedHosts hosts;
  const auto tls = GENERATE(as<std::string>(), "on", "off");
  const auto conf = "token_file=" + hosts.token_file("token", 'c') + ",tls=" + tls;
  const auto own = run(hosts.agent(0, conf, {"plain"}), hosts.agent(1, conf, {"plain"}));
  CHECK(own.a.code == 0);
  CHECK(own.b.code == 0);
  CHECK(count(own.out(), "the user admitted") == 2);
  const auto other = run(hosts.agent(0, conf, {"plain", "65533"}), hosts.agent(1, conf, {"plain", "65533"}));
  CHECK(count(other.out(), "another user refused") == 2);
  CHECK(other.out().find("admitted") == std::string::npos);
}

TEST_CASE("a process of the user that is none of the job is refused by the workers' store on both hosts") {
  need_hosts();
  const TrustedHosts hosts;
  const auto clients = GENERATE(as<std::string>(), "job", "user");
  const auto conf = "token_file=" + hosts.token_file("token", 'c') + ",plain_clients=" + clients;
  Child first(hosts.agent(0, conf, {"stay"})), second(hosts.agent(1, conf, {"stay"}));
  first.wait_for_out("\n");
  std::istringstream line(first.out().substr(first.out().find("store ")));
  std::string word, address, port;
  line >> word >> address >> port;
  const Variables variables{{"MASTER_ADDR", address}, {"MASTER_PORT", port},     {"RANK", "0"},
                            {"WORLD_SIZE", "1"},      {"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}};
  for (const int host : {0, 1}) {
    const auto outside = Child(TrustedHosts::behind(hosts.net.enter(host), {STORE_CLIENT, "plain"}), variables).wait();
    CHECK(outside.out == (clients == "job" ? "the user refused\n" : "the user admitted\n"));
  }
  for (auto* agent : {&first, &second}) agent->signal(SIGTERM);
  for (auto* agent : {&first, &second}) agent->wait();
}

TEST_CASE("C++ workers on another host than the store's use the token, and it appears nowhere") {
  need_hosts();
  const TrustedHosts hosts;
  const auto conf = "token_file=" + hosts.token_file("token", 'c');
  const auto both = run(hosts.agent(0, conf, {"group"}), hosts.agent(1, conf, {"group"}), {{"LOGLEVEL", "DEBUG"}});
  CHECK(both.a.code == 0);
  CHECK(both.b.code == 0);
  CHECK(count(both.out(), "grouped") == 2);
  // Each agent has a session, and one answers for its host; a worker there has more than one connection.
  CHECK(count(both.all(), "by its token") > 4);
  CHECK(both.all().find(std::string(16, 'c')) == std::string::npos);
}

TEST_CASE("an agent without the token learns why it is refused, and one with another token, too") {
  need_hosts();
  const TrustedHosts hosts;
  const auto known = "join_timeout=60,token_file=" + hosts.token_file("token", 'c');
  Child first(hosts.agent(0, known, {"plain"}), {});
  Child none(hosts.agent(1, "join_timeout=60", {"plain"}), {});
  const auto without = none.wait();
  CHECK(without.code == 2);
  CHECK(without.err.find("sent no token") != std::string::npos);
  Child wrong(hosts.agent(1, "join_timeout=60,token_file=" + hosts.token_file("other", 'd'), {"plain"}), {});
  const auto refused = wrong.wait();
  CHECK(refused.code == 2);
  CHECK(refused.err.find("does not know the token") != std::string::npos);
  first.signal(SIGTERM);
  CHECK(first.wait().out.empty());
}

TEST_CASE("a job that must be authenticated and has no token does not start") {
  need_hosts();
  const TrustedHosts hosts;
  auto words = hosts.agent(0, "join_timeout=5", {"plain"});
  words.insert(words.end() - 3, "--require_auth");
  const auto result = Child(words, {}).wait();
  CHECK(result.code == 2);
  CHECK(result.err.find("--require_auth") != std::string::npos);
}
