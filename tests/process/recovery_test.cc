#include <csignal>
#include <random>

#include "tests/process/training.h"
#include "tests/support/catch.h"

// A job that loses a worker is restarted and ends with the same bits. A job that ends because a peer was lost names
// that peer.
using namespace ddprun::testing;

namespace {

using Milliseconds = std::chrono::milliseconds;

struct UninterruptedRun {
  std::string parameters;
  Milliseconds duration;
};

UninterruptedRun run_uninterrupted(const Words& overrides = {}) {
  const Training training;
  const auto start = std::chrono::steady_clock::now();
  const auto result =
      Child(training.job({"--standalone", "--nproc_per_node=2"}, overrides)).wait(std::chrono::seconds(100));
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto duration = std::chrono::steady_clock::now() - start;
  return {parameters_of(result.out + result.err), std::chrono::duration_cast<Milliseconds>(duration)};
}

void kill_at_random_moments(const std::string& backend, int times, const Words& more = {}) {
  Words overrides{"--dist.backend=" + backend};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto expected = run_uninterrupted(overrides);
  REQUIRE(expected.parameters.size() == 64);
  std::uniform_int_distribution<Milliseconds::rep> moments(0, expected.duration.count() * 9 / 10);

  for (int kills = 0; kills < times;) {
    const Training training;
    Child child(training.job({"--standalone", "--nproc_per_node=2", "--max_restarts=1"}, overrides),
                training.marker.variables());
    const auto moment = ddprun::Deadline::in(Milliseconds(moments(random)));
    child.wait_until([&] { return moment.expired(); }, "the time of the kill", std::chrono::seconds(100));
    const auto workers = workers_of(training.marker);
    const bool killed = !workers.empty() && ::kill(workers[random() % workers.size()], SIGKILL) == 0;
    const auto result = child.wait(std::chrono::seconds(60));
    INFO("kill " << kills << (killed ? "" : " (no worker was running)") << "\n" << result.err);
    REQUIRE(result.code == 0);
    REQUIRE(parameters_of(result.out + result.err) == expected.parameters);
    // Every checkpoint written before the kill could be read after it.
    REQUIRE(result.err.find("skipped") == std::string::npos);
    if (killed) ++kills;
  }
}

}  // namespace

TEST_CASE("SIGKILL of a random worker at a random time, twenty times: the same bits of all parameters") {
  kill_at_random_moments("shm", 20);
}

TEST_CASE("SIGKILL of a random worker at a random time over Gloo: the same bits of all parameters") {
  kill_at_random_moments("gloo", 5);
}

TEST_CASE("SIGKILL of a worker that has a part of the layers: the same bits of all parameters") {
  kill_at_random_moments("shm", 3, {"--parallel.tensor=2"});
}

TEST_CASE("two ranks train to the same bits over Gloo and shared memory, in several buckets with equal replicas") {
  const auto parameters_over = [](const std::string& backend) {
    return run_uninterrupted({"--dist.backend=" + backend, "--dist.bucket_mb=0.02", "--train.check_replicas=true"})
        .parameters;
  };
  const auto expected = parameters_over("shm");
  REQUIRE(expected.size() == 64);
  CHECK(parameters_over("gloo") == expected);
}

TEST_CASE("SIGKILL of the whole job: the next command resumes from the last checkpoint") {
  const auto expected = run_uninterrupted();
  const Training training;
  {
    Child child(training.job({"--standalone", "--nproc_per_node=2"}), training.marker.variables());
    child.wait_until([&] { return training.checkpoints() > 0; }, "a checkpoint", std::chrono::seconds(60));
    child.signal(SIGKILL);
    child.wait_until([&] { return training.marker.processes() == 0; }, "end of every process");
  }
  const auto result = Child(training.job({"--standalone", "--nproc_per_node=2"})).wait(std::chrono::seconds(100));
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(parameters_of(result.out + result.err) == expected.parameters);
}

TEST_CASE("by default a checkpoint is written at the end of each epoch") {
  const Training training;
  const auto result = Child(training.job({"--standalone", "--nproc_per_node=2"},
                                         {"--checkpoint.every_steps=0", "--train.epochs=3", "--checkpoint.keep=9"}))
                          .wait(std::chrono::seconds(100));
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(training.checkpoints() == 3);
}

TEST_CASE("if a worker is frozen the other one ends with an error that names its rank") {
  const std::string backend = GENERATE("shm", "gloo");
  const std::string frozen = GENERATE("0", "1");
  CAPTURE(backend, frozen);
  const Training training;
  Child child(training.job({"--standalone", "--nproc_per_node=2", "--shutdown_timeout=1"},
                           {"--dist.backend=" + backend, "--dist.freeze_bound=3", "--train.epochs=1000"}),
              training.marker.variables());
  child.wait_until([&] { return training.checkpoints() > 0; }, "a checkpoint", std::chrono::seconds(60));
  const auto workers = workers_of(training.marker, frozen);
  REQUIRE(workers.size() == 1);
  ::kill(workers.front(), SIGSTOP);
  const auto result = child.wait(std::chrono::seconds(60));
  CHECK(result.code == 1);
  INFO(result.err);
  CHECK(result.err.find("rank " + frozen) != std::string::npos);
  CHECK(training.marker.processes() == 0);
}

TEST_CASE("the root cause of a killed worker's job is that worker, not the one that lost its peer") {
  const std::string backend = GENERATE("shm", "gloo");
  const std::string killed = GENERATE("0", "1");
  CAPTURE(backend, killed);
  const Training training;
  Child child(
      training.job({"--standalone", "--nproc_per_node=2"}, {"--dist.backend=" + backend, "--train.epochs=1000"}),
      training.marker.variables());
  child.wait_until([&] { return training.checkpoints() > 0; }, "a checkpoint", std::chrono::seconds(60));
  const auto workers = workers_of(training.marker, killed);
  REQUIRE(workers.size() == 1);
  ::kill(workers.front(), SIGKILL);
  const auto result = child.wait(std::chrono::seconds(60));
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  const auto rank = "rank " + killed + " (local rank " + killed + ", pid " + std::to_string(workers.front()) + ")";
  CHECK(result.err.find("[ddprun] error: " + rank) != std::string::npos);
  CHECK(result.err.find("ended by SIGKILL") != std::string::npos);
}

TEST_CASE("a frozen worker of a mesh is named with its place there") {
  const std::string backend = GENERATE("shm", "gloo");
  CAPTURE(backend);
  const Training training;
  Child child(training.job(
                  {"--standalone", "--nproc_per_node=4", "--shutdown_timeout=1"},
                  {"--dist.backend=" + backend, "--dist.freeze_bound=3", "--train.epochs=1000", "--parallel.tensor=2"}),
              training.marker.variables());
  child.wait_until([&] { return training.checkpoints() > 0; }, "a checkpoint", std::chrono::seconds(60));
  const auto workers = workers_of(training.marker, "3");
  REQUIRE(workers.size() == 1);
  ::kill(workers.front(), SIGSTOP);
  const auto result = child.wait(std::chrono::seconds(60));
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK(result.err.find("(worker 3: data 1, tensor 1, pid " + std::to_string(workers.front())) != std::string::npos);
}
