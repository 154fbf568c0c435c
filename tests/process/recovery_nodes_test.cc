#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"
#include "tests/support/free_port.h"

// A job of two agents with two ranks each that loses workers: the others keep their processes on both nodes.
using namespace ddprun::testing;

namespace {

class TwoNodes {
 public:
  explicit TwoNodes(Words launch, Words overrides = {}) : launch_(std::move(launch)), overrides_(std::move(overrides)) {
    first = start("is_host=true");
    second = start("is_host=false");
  }

  // Starts an agent of the job. The first one serves the rendezvous.
  std::unique_ptr<Child> start(const std::string& conf) const {
    Words all{"--nnodes=2", "--nproc_per_node=2", "--rdzv_endpoint=127.0.0.1:" + port_, "--rdzv_conf=" + conf,
              "--shutdown_timeout=5"};
    all.insert(all.end(), launch_.begin(), launch_.end());
    return std::make_unique<Child>(training.job(all, recorded(training, overrides_)), training.marker.variables());
  }
  // Returns the output of both, after they have ended with this code.
  std::string wait(int code = 0) {
    std::string text;
    for (auto* each : {first.get(), second.get()}) {
      const auto result = each->wait(bound);
      INFO(result.out + result.err);
      CHECK(result.code == code);
      text += result.out + result.err;
    }
    return text;
  }

  Training training;
  std::unique_ptr<Child> first, second;

 private:
  const Words launch_, overrides_;
  const std::string port_ = std::to_string(free_port());
};

std::string undisturbed_digest(const Words& more) {
  TwoNodes job({}, more);
  return parameters_of(job.wait());
}

}  // namespace

TEST_CASE("SIGKILL of ranks on either node: the others of both go on in their processes, with the same bits") {
  const Words overrides{"--dist.backend=" + std::string(GENERATE("gloo", "shm")), "--train.log_every=1"};
  CAPTURE(overrides);
  const auto expected = undisturbed_digest(overrides);
  REQUIRE(expected.size() == 64);
  in_time([&] {
    TwoNodes job({"--max_restarts=4"}, overrides);
    int step = 10;
    for (const int rank : {1, 2, 0, 3}) {
      CAPTURE(rank);
      wait_for_step(*job.first, job.training, step);
      replace(*job.first, job.training, rank);
      step = static_cast<int>(recorded_steps(job.training).back()) + 5;
    }
    const auto output = job.wait();
    CHECK(parameters_of(output) == expected);
    CHECK(recorded_steps(job.training) == first_steps(80));
    for (int restart = 1; restart <= 4; ++restart)  // both agents say it
      CHECK(occurrences(output, "restart " + std::to_string(restart) + " of 4: a replacement for this rank alone") ==
            2);
    CHECK(occurrences(output, "new round") == 0);
    CHECK(job.training.marker.processes() == 0);
  });
}

TEST_CASE("frozen ranks of either node are ended by their own agent and replaced") {
  const auto expected = undisturbed_digest({});
  in_time([&] {
    TwoNodes job({"--max_restarts=2"});
    for (const int rank : {3, 1}) {
      CAPTURE(rank);
      wait_for_step(*job.first, job.training, 20 + static_cast<std::int64_t>(recorded_steps(job.training).size()));
      replace(*job.first, job.training, rank, SIGSTOP);
    }
    const auto output = job.wait();
    CHECK(parameters_of(output) == expected);
    CHECK(recorded_steps(job.training) == first_steps(80));
    CHECK(occurrences(output, "sent SIGKILL to the worker of local rank 1 (pid ") == 2);
    CHECK(occurrences(output, "new round") == 0);
    CHECK(job.training.marker.processes() == 0);
  });
}

TEST_CASE("ranks of both nodes that die at once are replaced together") {
  const auto expected = undisturbed_digest({});
  in_time([&] {
    TwoNodes job({"--max_restarts=2"});
    wait_for_step(*job.first, job.training, 20);
    const auto before = all_workers(*job.first, job.training);
    ::kill(before.at(0), SIGKILL);
    ::kill(before.at(3), SIGKILL);
    wait_for_step(*job.first, job.training, 60);
    const auto now = workers_by_rank(job.training);
    CHECK(now.at(1) == before.at(1));
    CHECK(now.at(2) == before.at(2));
    const auto output = job.wait();
    CHECK(parameters_of(output) == expected);
    CHECK(recorded_steps(job.training) == first_steps(80));
  });
}

TEST_CASE("a node that loses all of its workers at once gets them replaced") {
  in_time([&] {
    TwoNodes job({"--max_restarts=2"});
    wait_for_step(*job.first, job.training, 20);
    const auto before = all_workers(*job.first, job.training);
    for (const int rank : {2, 3}) ::kill(before.at(rank), SIGKILL);
    wait_for_step(*job.first, job.training, 60);
    const auto now = workers_by_rank(job.training);
    CHECK(now.at(0) == before.at(0));
    CHECK(now.at(1) == before.at(1));
    CHECK(occurrences(job.wait(), "new round") == 0);
  });
}

TEST_CASE("the loss of a node restarts all workers, as soon as another one has come") {
  in_time([&] {
    TwoNodes job({"--max_restarts=2"});
    wait_for_step(*job.first, job.training, 20);
    ::kill(job.second->pid(), SIGKILL);
    job.second->wait(bound);
    job.second = job.start("is_host=false");
    const auto output = job.wait();
    CHECK(occurrences(output, "new round") >= 1);
    CHECK(occurrences(output, "a replacement for this rank alone") == 0);
    CHECK(job.training.marker.processes() == 0);
  });
}

TEST_CASE("with --restart=failed a job of several nodes ends where workers have not announced that they can recover") {
  in_time([&] {
    TwoNodes job({"--max_restarts=4", "--restart=failed"}, {"--recovery.mode=restart"});
    wait_for_step(*job.first, job.training, 5);
    ::kill(workers_by_rank(job.training).at(3), SIGKILL);
    const auto output = job.wait(2);
    CHECK(occurrences(output, "has not announced that it can recover (--restart=failed)") == 2);
    CHECK(job.training.marker.processes() == 0);
  });
}
