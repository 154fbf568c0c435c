#include <csignal>
#include <regex>
#include <set>

#include "tests/process/nodes.h"
#include "tests/process/training.h"
#include "tests/support/catch.h"

// Nodes that leave the job and join it again, as --chaos asks for.
using namespace ddprun::testing;

namespace {

constexpr const char* leaves_for_a_time = "--chaos: this node leaves the job until it joins again";

// Returns the sizes of all rounds in which this node's worker has run.
std::set<std::string> world_sizes(const std::string& out) {
  std::set<std::string> sizes;
  for (const auto& line : lines_of(out))
    if (line.starts_with("WORLD_SIZE=")) sizes.insert(line.substr(line.find('=') + 1));
  return sizes;
}

}  // namespace

TEST_CASE("a node leaves the job and joins it again, while the other one goes on") {
  Nodes job{.options = {"--nnodes=1:2", "--max_restarts=0"}};
  auto a = job.host();
  a.wait_for_round(1);
  auto b = job.guest("", {"--chaos=leave:1s,join:1s"});
  for (int i = 0; i < 2; ++i) {
    const int next = a.generation() + 1;
    for (auto* node : {&a, &b}) node->wait_for_round(2, next);
    a.wait_for_round(1, next + 1);
  }
  a.wait_for_err("left: --chaos");
  b.wait_for_err(leaves_for_a_time);
  b.wait_for_err("--chaos: this node joins the job again");
  job.finish();
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
}

TEST_CASE("of nodes that all may leave, each leaves in turn, and never so many that fewer than the minimum remain") {
  Nodes job{.options = {"--nnodes=2:3", "--chaos=leave:200ms,join:200ms;seed=5"}};
  auto a = job.host();
  auto b = job.guest();
  auto c = job.guest();
  for (auto* node : {&a, &b, &c}) node->wait_for_err(leaves_for_a_time);
  job.finish();
  for (auto* node : {&a, &b, &c}) {
    const auto result = node->wait();
    INFO(result.err);
    CHECK(result.code == 0);
    for (const auto& size : world_sizes(result.out)) CHECK((size == "2" || size == "3"));
    // A round without enough nodes does not begin; the job would wait for them.
    CHECK_FALSE(std::regex_search(result.err, std::regex("left: --chaos; . of . nodes are here")));
  }
}

TEST_CASE("a node that is away when the job ends, ends with it") {
  Nodes job{.options = {"--nnodes=1:2"}};
  auto a = job.host();
  a.wait_for_round(1);
  auto b = job.guest("", {"--chaos=leave:100ms,join:1h"});
  b.wait_for_err(leaves_for_a_time);
  SECTION("by itself") {
    a.wait_for_err("left: --chaos");
    job.finish();
    CHECK(a.wait().code == 0);
    const auto result = b.wait();
    CHECK(result.code == 0);
    CHECK_THAT(lines_of(result.err).back(),
               Catch::Contains("this node had left the job: it ends with the job's exit code, 0"));
  }
  SECTION("by ddprun stop") {
    Node({DDPRUN_PROGRAM, "stop", "--rdzv_endpoint=" + job.endpoint}, {}).wait();
    for (auto* node : {&a, &b}) CHECK(node->wait().code == 128 + SIGTERM);
  }
  SECTION("by a signal of its own") {
    b.signal(SIGTERM);
    CHECK(b.wait().code == 128 + SIGTERM);
    job.finish();
    CHECK(a.wait().code == 0);
  }
}

TEST_CASE("without join a node ends when it leaves, unless it runs the rendezvous server") {
  Nodes job{.options = {"--nnodes=1:2", "--chaos=leave:100ms"}};
  auto a = job.host();
  a.wait_for_err("--chaos: this node leaves later: it runs the rendezvous server");
  auto b = job.guest();
  const auto left = b.wait();
  CHECK(left.code == 128 + SIGTERM);
  CHECK_THAT(left.err, Catch::Contains("--chaos: this node leaves the job and ends"));
  a.wait_for_err("left: --chaos");
  job.finish();
  CHECK(a.wait().code == 0);
}

TEST_CASE("a training that is restarted as nodes leave and join ends with the account of it") {
  const Training training;
  const auto endpoint = "127.0.0.1:" + std::to_string(free_port());
  const auto start = [&](const std::string& is_host, const Words& more) {
    Words launch{"--nnodes=1:2", "--rdzv_endpoint=" + endpoint, "--rdzv_conf=last_call_timeout=1,is_host=" + is_host};
    launch.insert(launch.end(), more.begin(), more.end());
    return Child(
        training.job(launch, {"--data.samples=38400", "--train.preempt_signal=TERM", "--recovery.mode=restart"}));
  };
  auto a = start("true", {});
  auto b = start("false", {"--chaos=leave:1s,join:500ms"});
  const auto result = a.wait(std::chrono::seconds(240));
  const auto other = b.wait(std::chrono::seconds(60));
  INFO(result.err);
  INFO(other.err);
  CHECK(result.code == 0);
  CHECK(other.code == 0);
  CHECK_THAT(other.err, Catch::Contains(leaves_for_a_time));
  CHECK_THAT(result.err + other.err, Catch::Contains("info: goodput ") && Catch::Contains(" (membership "));
}

TEST_CASE("nodes that cannot leave or join are refused with what to do") {
  const auto [options, expected] = GENERATE(table<Words, std::string>({
      {{"--nnodes=2", "--chaos=kill:1h,leave:1h"},
       "--chaos: leave needs --nnodes=MIN:MAX with MIN less than MAX, so that the job goes on without this node; "
       "--nnodes=2 is a fixed number"},
      {{"--standalone", "--chaos=leave:1h,join:1h"},
       "--chaos: leave needs --nnodes=MIN:MAX with MIN less than MAX, so that the job goes on without this node; "
       "--nnodes=1 is a fixed number"},
      {{"--nnodes=1:2", "--rdzv_backend=etcd", "--rdzv_endpoint=127.0.0.1:1", "--chaos=leave:1h"},
       "--chaos: leave needs --rdzv_backend=c10d, whose server knows when enough nodes remain"},
      {{"--nnodes=1:2", "--chaos=join:1h"},
       "--chaos: join:1h: expected leave:TIME beside join:TIME: a node joins again after it has left"},
  }));
  const auto result = Child(command(options, {"exit=0"})).wait(std::chrono::seconds(60));
  CHECK(result.code == 2);
  CHECK(result.err == "[ddprun] error: " + expected + "\n");
}
