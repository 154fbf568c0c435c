#include <csignal>

#include "tests/process/training.h"
#include "tests/support/catch.h"
#include "tests/support/netns.h"
#include "tests/support/temp_dir.h"

// Two agents on two hosts. The first agent serves the rendezvous at its own address.
using namespace ddprun::testing;

namespace {

struct TwoHosts {
  NetnsHosts hosts{2};

  Words on(int host, const Words& options, const Words& verbs) const {
    Words words = hosts.enter(host);
    for (const auto& word : command(options, verbs)) words.push_back(word);
    return words;
  }
  Words options(const Words& more) const {
    Words words{"--nproc_per_node=2", "--rdzv_endpoint=" + hosts.address(0) + ":29400"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

void need_hosts() {
  if (const auto why = NetnsHosts::why_not(); !why.empty()) SKIP(why);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("agents on two hosts form one job, and the workers' store is at an address that both can reach") {
  need_hosts();
  const TwoHosts two;
  const auto options = two.options({"--nnodes=2"});
  Child first(two.on(0, options, {"env"}));
  Child second(two.on(1, options, {"env"}));
  const auto a = first.wait();
  const auto b = second.wait();
  CHECK(a.code == 0);
  CHECK(b.code == 0);
  const auto both = a.out + b.out;
  for (const auto* rank : {"0", "1", "2", "3"}) CHECK(count(both, std::string("]:RANK=") + rank + "\n") == 1);
  CHECK(count(both, ":WORLD_SIZE=4\n") == 4);
  const auto host = both.find("MASTER_ADDR=" + two.hosts.address(0)) != std::string::npos ? 0 : 1;
  CHECK(count(both, ":MASTER_ADDR=" + two.hosts.address(host) + "\n") == 4);
}

TEST_CASE("a failure on one host ends the job on both, with the same root cause and its exit code") {
  need_hosts();
  const TwoHosts two;
  const auto options = two.options({"--nnodes=2"});
  Child first(two.on(0, options, {"pause"}));
  Child second(two.on(1, options, {"exit=7"}));
  const auto a = first.wait();
  const auto b = second.wait();
  CHECK(a.code == 7);
  CHECK(b.code == 7);
  CHECK(a.err.find("Root Cause (first observed failure)") != std::string::npos);
  CHECK(b.err.find("Root Cause (first observed failure)") != std::string::npos);
}

TEST_CASE("a host that is cut off is lost within the keep-alive bound, and the other continues without it") {
  need_hosts();
  TwoHosts two;
  const TempDir folder;
  const auto conf = "--rdzv_conf=last_call_timeout=5,store_timeout=1";
  const auto options = two.options({"--nnodes=1:2", "--shutdown_timeout=1", conf});
  // In the first round all workers wait; in the next the survivors print their environment and end.
  const auto verbs = [&](const std::string& host) {
    return Words{"if-attempt=0", "touch=" + (folder / (host + "${local_rank}")).string(), "pause", "end-if", "env"};
  };
  Child first(two.on(0, options, verbs("a")));
  Child second(two.on(1, options, verbs("b")));
  const auto runs = [&](const char* name) { return std::filesystem::exists(folder / name); };
  first.wait_until([&] { return runs("a0") && runs("a1") && runs("b0") && runs("b1"); }, "the first round");
  two.hosts.link_down(1);
  const auto a = first.wait(std::chrono::seconds(60));
  CHECK(a.code == 0);
  CHECK(count(a.out, ":WORLD_SIZE=2\n") == 2);
  CHECK(count(a.out, ":TORCHELASTIC_RESTART_COUNT=1\n") == 2);
  // The disconnected host cannot know that the other continues: it exits and reports the lost server.
  const auto b = second.wait(std::chrono::seconds(60));
  CHECK(b.code == 1);
  CHECK(b.err.find(two.hosts.address(0)) != std::string::npos);
}

TEST_CASE("a training that loses the link to a peer ends long before its timeout, and names the peer's rank") {
  need_hosts();
  if (const auto why = NetnsHosts::why_not_isolated(); !why.empty()) SKIP(why);
  TwoHosts two;
  const Training training;
  const auto job = [&](int host) {
    auto words = two.hosts.enter_isolated(host);
    const auto launch = Words{"--nnodes=2", "--nproc_per_node=1", "--shutdown_timeout=1",
                              "--rdzv_endpoint=" + two.hosts.address(0) + ":29400"};
    for (const auto& word : training.job(launch, {"--dist.timeout=600", "--train.epochs=1000"})) words.push_back(word);
    return words;
  };
  Child first(job(0), training.marker.variables());
  Child second(job(1), training.marker.variables());
  first.wait_until([&] { return training.checkpoints() > 0; }, "a checkpoint");
  const auto rank_of_second = first.out().find("step") != std::string::npos ? "1" : "0";
  two.hosts.link_down(1);
  const auto a = first.wait(std::chrono::seconds(60));
  INFO(a.err);
  CHECK(a.code == 1);
  CHECK(a.err.find(std::string("rank ") + rank_of_second) != std::string::npos);
  two.hosts.link_up(1);
  second.wait(std::chrono::seconds(60));
  CHECK(training.marker.processes() == 0);
}
