#include <csignal>
#include <set>
#include <string>
#include <vector>

#include "tests/process/node_training.h"
#include "tests/support/catch.h"

// Nodes that stand by, and take the place of one that is lost (--spares).
using namespace ddprun::testing;

namespace {

constexpr const char* of_two_workers = "--nproc_per_node=2";
using Pids = std::set<pid_t>;

constexpr std::int64_t steps = 200;

// A frozen worker is no failure: a test that stops one decides how long the others wait for it.
Words overrides() {
  return {"--train.batch_size=0", "--train.global_batch_size=40", "--data.samples=4000",
          "--checkpoint.every_steps=1000", "--dist.freeze_bound=300"};
}

std::string undisturbed_digest() {
  NodeTraining job("2", "60", {of_two_workers}, overrides());
  std::vector<Child*> agents{&job.start(), &job.start()};
  std::string output;
  for (auto* agent : agents) output += output_of(*agent);
  auto digest = parameters_of(output);
  REQUIRE(digest.size() == 64);
  return digest;
}

// Returns the processes of this name (comm) that the agent has started; an empty one means those with a rank.
Pids processes_of(const NodeTraining& job, const Child& agent, const std::string& name = "") {
  Pids pids;
  const auto all = name.empty() ? workers_of(job.training.marker) : job.training.marker.pids();
  for (const pid_t pid : all)
    if (NodeTraining::parent_of(pid) == agent.pid() &&
        (name.empty() || proc_text(std::to_string(pid), "comm") == name + "\n"))
      pids.insert(pid);
  return pids;
}

std::string status_of(const NodeTraining& job) {
  return Child({DDPRUN_PROGRAM, "status", "--rdzv_endpoint=" + job.endpoint()}).wait(bound).out;
}

// Returns the processes of the spare, once all of them are ready and the server knows it.
Pids wait_until_warm(const NodeTraining& job, Child& spare) {
  spare.wait_until([&] { return occurrences(status_of(job), ", warm, joined") == 1; }, "a spare that is warm", bound);
  auto standing_by = processes_of(job, spare, "ddprun-standby");
  CHECK(standing_by.size() == 2);
  return standing_by;
}

// While it lives, a worker is stopped, and the others wait for it: the job does not end meanwhile.
class Held {
 public:
  explicit Held(pid_t worker) : worker_(worker) { REQUIRE(::kill(worker_, SIGSTOP) == 0); }
  ~Held() { ::kill(worker_, SIGCONT); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const pid_t worker_;
};

void kill_node(const NodeTraining& job, Child& agent) {
  const auto workers = processes_of(job, agent);
  agent.signal(SIGKILL);
  for (const pid_t pid : workers) ::kill(pid, SIGKILL);
  agent.wait(bound);
}

}  // namespace

TEST_CASE("a spare that stands by takes the place of a lost node of a fixed number, with the same bits") {
  const auto expected = undisturbed_digest();
  NodeTraining job("2", "60", {of_two_workers, "--spares=1"}, overrides());
  auto& a = job.start();
  auto& b = job.start();
  b.wait_for_err(able, bound);
  auto& spare = job.start();
  spare.wait_for_err("this node is a spare", bound);
  job.wait_for_step(5);
  const auto before = processes_of(job, a);
  REQUIRE(before.size() == 2);
  Pids standing_by;
  {
    const Held held(*before.begin());
    standing_by = wait_until_warm(job, spare);
    CHECK(processes_of(job, spare).empty());
    kill_node(job, b);
    a.wait_for_err("generation 0 goes on with 2 nodes and 4 workers", bound);
  }
  job.wait_for_steps(20);
  CHECK(processes_of(job, a) == before);
  CHECK(processes_of(job, spare) == standing_by);
  const auto output = output_of(a) + output_of(spare);
  CHECK(occurrences(output, "this node joins generation 0, which runs, as node 1 of 2") == 1);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(parameters_of(output) == expected);
  CHECK(recorded_steps(job.training) == first_steps(steps));
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE("a spare that is lost is replaced by another one, and processes that stand by end with the job") {
  NodeTraining job("1:2", "60", {of_two_workers, "--spares=1"}, overrides());
  auto& a = job.start();
  auto& b = job.start();
  b.wait_for_err(able, bound);
  job.wait_for_step(5);
  const auto before = processes_of(job, a);
  REQUIRE(before.size() == 2);
  Child* last = nullptr;
  {
    const Held held(*before.begin());
    auto& first = job.start();
    const auto standing_by = wait_until_warm(job, first);
    auto& second = job.start();
    last = &second;
    second.wait_for_err("this node is a spare", bound);
    CHECK(processes_of(job, second, "ddprun-standby").empty());
    kill_node(job, first);
    for (const pid_t pid : standing_by)
      second.wait_until([&] { return !std::filesystem::exists("/proc/" + std::to_string(pid)); }, "its end");
    const auto others = wait_until_warm(job, second);
    REQUIRE(::kill(*others.begin(), SIGKILL) == 0);
    second.wait_until([&] { return processes_of(job, second, "ddprun-standby") != others; }, "another process", bound);
    CHECK(processes_of(job, a) == before);
  }
  for (auto* agent : {&a, &b}) output_of(*agent);
  CHECK_THAT(output_of(*last), Catch::Contains("this node was a spare: none of its workers was started"));
  CHECK(recorded_steps(job.training) == first_steps(steps));
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE("a node with another number of spares, and options with which none can stand by, are refused") {
  NodeTraining job("2", "60", {"--spares=1"}, overrides());
  auto& a = job.start();
  auto& b = job.start();
  b.wait_for_err(able, bound);
  {
    const Held held(job.workers().begin()->second);
    auto& other = job.start({"--spares=2"});
    CHECK_THAT(output_of(other, 2), Catch::Contains("asks for --spares 2 where the job has 1"));
  }
  for (auto* agent : {&a, &b}) output_of(*agent);
  const std::vector<std::pair<std::string, std::string>> refusals{
      {"--rdzv_backend=etcd", "with --rdzv_backend=etcd all workers start again"},
      {"--rdzv_backend=static", "with --rdzv_backend=static all workers start again"},
      {"--restart=all", "with --restart=all all workers start again"},
      {"--no_agent_store", "with --no_agent_store all workers start again"},
      {"--mpi=pmi1", "with --mpi "}};
  for (const auto& [option, said] : refusals) {
    CAPTURE(option);
    const auto result =
        Child({DDPRUN_PROGRAM, "--nnodes=2", "--spares=1", "--rdzv_endpoint=127.0.0.1:1", option, "/bin/true"})
            .wait(bound);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, Catch::Contains("--spares = 1: " + said));
  }
}
