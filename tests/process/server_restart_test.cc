#include <csignal>
#include <memory>
#include <regex>
#include <string>
#include <utility>

#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"

// A job of two agents with two ranks each, whose rendezvous server is a ddprun-store that is killed.
using namespace ddprun::testing;

namespace {

class ServedJob {
 public:
  // attempts: the keep-alive attempts, so that the lease is as many seconds.
  explicit ServedJob(Words launch, Words overrides = {}, int attempts = 300)
      : launch_(std::move(launch)), overrides_(std::move(overrides)), attempts_(attempts) {
    start_store();
    for (int node = 0; node < 2; ++node) agents[node] = start(node);
  }

  // The store serves once it has said where.
  void start_store() {
    store_ = std::make_unique<Child>(Words{STORE_PROGRAM, "--host=127.0.0.1", "--port=" + port_});
    store_->wait_for_out("ddprun-store listens at");
  }
  void kill_store() {
    store_->signal(SIGKILL);
    store_->wait(bound);
  }

  // Waits until all agents know that their workers can recover.
  void wait_until_recoverable() {
    for (auto& agent : agents) agent->wait_for_err("all workers can recover: true", bound);
  }
  void wait_for_err(const std::string& text) {
    for (auto& agent : agents) agent->wait_for_err(text, bound);
  }

  // Returns what the server knows of the job.
  std::string status() const {
    const auto result = run_child({DDPRUN_PROGRAM, "status", "--rdzv_endpoint=127.0.0.1:" + port_});
    return result.out + result.err;
  }

  // Returns the address of the workers' store as the server knows it.
  std::string workers_store() const {
    const auto result = run_child({DDPRUN_PROGRAM, "status", "--json", "--rdzv_endpoint=127.0.0.1:" + port_});
    std::smatch found;
    return std::regex_search(result.out, found, std::regex("\"store\": *\"([^\"]*)\"")) ? found[1].str() : "";
  }

  // Returns the output of all agents, after they have ended with this code.
  std::string wait(int code = 0) {
    std::string text;
    for (auto& agent : agents) {
      const auto result = agent->wait(bound);
      INFO(result.out + result.err);
      CHECK(result.code == code);
      text += result.out + result.err;
    }
    return text;
  }

  Training training;
  std::unique_ptr<Child> agents[2];

 private:
  // Node 0 serves the workers' store.
  std::unique_ptr<Child> start(int node) const {
    Words all{"--rdzv_backend=c10d",
              "--nnodes=2",
              "--nproc_per_node=2",
              "--node_rank=" + std::to_string(node),
              "--rdzv_endpoint=127.0.0.1:" + port_,
              "--rdzv_conf=is_host=false,last_call_timeout=1,store_timeout=300,keep_alive_max_attempt=" +
                  std::to_string(attempts_),
              "--shutdown_timeout=5"};
    all.insert(all.end(), launch_.begin(), launch_.end());
    auto variables = training.marker.variables();
    variables["LOGLEVEL"] = "DEBUG";
    return std::make_unique<Child>(training.job(all, recorded(training, overrides_)), variables);
  }

  const Words launch_, overrides_;
  const int attempts_;
  const std::string port_ = std::to_string(free_port());
  std::unique_ptr<Child> store_;
};

// It outlasts what a test does to the job. The end of the test kills the agents, whose guardians kill the workers.
const Words long_training{"--train.epochs=100000"};

const std::string trains_on = "train on for at most";
const std::string goes_on = "goes on, with the same workers";

}  // namespace

TEST_CASE("the server is killed and started again: the workers train on, in their processes and their round") {
  ServedJob job({"--max_restarts=2"}, long_training);
  wait_for_step(*job.agents[0], job.training, 5);
  job.wait_until_recoverable();
  const auto before = workers_by_rank(job.training);
  REQUIRE(before.size() == ranks);
  const auto store = job.workers_store();
  REQUIRE_FALSE(store.empty());
  job.kill_store();
  job.wait_for_err(trains_on);
  const auto step = recorded_steps(job.training).back();
  wait_for_step(*job.agents[0], job.training, step + 10);  // without a server
  job.start_store();
  job.wait_for_err(goes_on);
  CHECK(workers_by_rank(job.training) == before);
  CHECK(job.workers_store() == store);
  for (const auto& [rank, pid] : before)
    job.agents[0]->wait_until(
        [&, pid = pid] { return job.status().find("pid " + std::to_string(pid)) != std::string::npos; },
        "the status of rank " + std::to_string(rank), bound);
  const auto steps = recorded_steps(job.training);
  CHECK(steps == first_steps(steps.back()));
  for (auto& agent : job.agents) {
    CHECK(occurrences(agent->err(), trains_on) == 1);
    CHECK(occurrences(agent->err(), goes_on) == 1);
    CHECK(occurrences(agent->err(), "new round") == 0);
  }
}

TEST_CASE("a job whose workers end while there is no server ends with success once there is one") {
  ServedJob job({"--max_restarts=2"}, {"--train.epochs=40"});
  job.wait_until_recoverable();
  job.kill_store();
  job.wait_for_err(trains_on);
  job.agents[0]->wait_until([&] { return workers_of(job.training.marker).empty(); }, "the end of all workers", bound);
  job.start_store();
  const auto output = job.wait();
  CHECK(occurrences(output, goes_on) == 2);
  CHECK(occurrences(output, "new round") == 0);
  CHECK(recorded_steps(job.training) == first_steps(40 * 40));
  CHECK(job.training.marker.processes() == 0);
}

TEST_CASE("a worker that is killed while there is no server is replaced once there is one") {
  ServedJob job({"--max_restarts=2"}, long_training);
  wait_for_step(*job.agents[0], job.training, 5);
  job.wait_until_recoverable();
  const auto before = workers_by_rank(job.training);
  REQUIRE(before.size() == ranks);
  const int victim = GENERATE(0, 3);
  job.kill_store();
  job.wait_for_err(trains_on);
  REQUIRE(::kill(before.at(victim), SIGKILL) == 0);
  job.agents[0]->wait_until([&] { return workers_by_rank(job.training).size() == ranks - 1; }, "its end", bound);
  const auto step = recorded_steps(job.training).back();
  job.start_store();
  job.wait_for_err("restart 1 of 2: a replacement for this rank alone");
  wait_for_step(*job.agents[0], job.training, step + 10);
  auto now = workers_by_rank(job.training);
  REQUIRE(now.size() == ranks);
  CHECK(std::exchange(now[victim], before.at(victim)) != before.at(victim));
  CHECK(now == before);
}

TEST_CASE("workers whose server does not come back within the lease are stopped, and restarted when it does") {
  ServedJob job({"--max_restarts=2"}, long_training, 3);
  wait_for_step(*job.agents[0], job.training, 5);
  job.wait_until_recoverable();
  job.kill_store();
  job.wait_for_err(trains_on);
  job.wait_for_err("no server was back in time for the workers to go on");
  job.agents[0]->wait_until([&] { return workers_of(job.training.marker).empty(); }, "the end of all workers", bound);
  job.start_store();
  job.wait_for_err("new round: the rendezvous server was restarted");
  job.agents[0]->wait_until([&] { return workers_by_rank(job.training).size() == ranks; }, "a new round", bound);
}

TEST_CASE("a node that is lost with the server leads to a new round after the lease") {
  ServedJob job({"--max_restarts=2", "--nnodes=1:2"}, long_training, 20);
  wait_for_step(*job.agents[0], job.training, 5);
  job.wait_until_recoverable();
  job.kill_store();
  job.wait_for_err(trains_on);
  job.agents[1]->signal(SIGKILL);
  job.agents[1]->wait(bound);
  job.start_store();
  job.agents[0]->wait_for_err("not all nodes of the round were back in time for the workers to go on", bound);
  job.agents[0]->wait_for_err("new round: the rendezvous server was restarted", bound);
  CHECK(job.agents[0]->err().find(goes_on) == std::string::npos);
  job.agents[0]->wait_until([&] { return workers_by_rank(job.training).size() == 2; }, "a round of one node", bound);
}

TEST_CASE("workers that have not announced that they can recover are stopped at once when the server is lost") {
  ServedJob job({"--max_restarts=2"}, {"--train.epochs=100000", "--recovery.mode=restart"});
  wait_for_step(*job.agents[0], job.training, 5);
  // The agents have told the server of the training, and before it, whether their workers can recover.
  job.agents[0]->wait_until([&] { return job.status().find("training: step") != std::string::npos; }, "a report",
                            bound);
  job.kill_store();
  job.wait_for_err("trying to rejoin for ");
  job.agents[0]->wait_until([&] { return workers_of(job.training.marker).empty(); }, "the end of all workers", bound);
  for (auto& agent : job.agents) CHECK(agent->err().find(trains_on) == std::string::npos);
}
