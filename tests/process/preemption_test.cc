#include <csignal>
#include <filesystem>

#include "tests/process/training.h"
#include "tests/support/catch.h"

// A notice to make room: all ranks stop behind the same step, its checkpoint is complete, the exit code says so, and
// the same command goes on as if nothing had happened.
using namespace ddprun::testing;

namespace {

struct Preemptible : Training {
  // No checkpoint but the one that a notice asks for, and the one at the end.
  Words command(const Words& launch = {}, Words overrides = {}) const {
    overrides.insert(overrides.end(), {"--checkpoint.every_steps=1000000", "--metrics.file=" + metrics().string()});
    Words options{"--standalone", "--nproc_per_node=2"};
    options.insert(options.end(), launch.begin(), launch.end());
    return job(options, overrides);
  }
  std::filesystem::path metrics() const { return folder / "metrics.jsonl"; }
  // The first step is done, and many are left.
  bool under_way() const {
    std::error_code absent;
    return std::filesystem::file_size(metrics(), absent) > 0 && !absent;
  }
};

std::string undisturbed_parameters() {
  const Preemptible training;
  const auto result = Child(training.command()).wait(std::chrono::seconds(100));
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

// Given the job that made room: the same command goes on, to the bits of a run that nothing disturbed.
void check_goes_on(const Preemptible& training, const Words& launch, const Words& overrides,
                   const std::string& expected) {
  const auto result = Child(training.command(launch, overrides)).wait(std::chrono::seconds(100));
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(result.out.find("going on from the checkpoint of step ") != std::string::npos);
  CHECK(parameters_of(result.out) == expected);
}

}  // namespace

TEST_CASE("a notice by SIGUSR1 or SIGTERM: exit code 75, one whole checkpoint, no restart, and the same bits later") {
  const bool term = GENERATE(false, true);
  CAPTURE(term);
  const auto expected = undisturbed_parameters();
  const Words launch{"--max_restarts=3"};
  const Words overrides = term ? Words{"--train.preempt_signal=TERM"} : Words{};
  const Preemptible training;
  Child child(training.command(launch, overrides), training.marker.variables());
  child.wait_until([&] { return training.under_way(); }, "the first step", std::chrono::seconds(60));
  child.signal(term ? SIGTERM : SIGUSR1);
  const auto result = child.wait(std::chrono::seconds(60));
  INFO(result.out << result.err);
  REQUIRE(result.code == 75);
  CHECK(result.out.find("preempted at step ") != std::string::npos);
  CHECK(result.err.find("new round") == std::string::npos);
  CHECK(result.err.find("FAILED") == std::string::npos);
  CHECK(training.checkpoints() == 1);
  CHECK(training.marker.processes() == 0);
  check_goes_on(training, launch, overrides, expected);
}

TEST_CASE("a notice to one rank stops all behind the same step") {
  const std::string rank = GENERATE("0", "1");
  CAPTURE(rank);
  const Preemptible training;
  Child child(training.command(), training.marker.variables());
  child.wait_until([&] { return training.under_way(); }, "the first step", std::chrono::seconds(60));
  const auto workers = workers_of(training.marker, rank);
  REQUIRE(workers.size() == 1);
  ::kill(workers.front(), SIGUSR1);
  const auto result = child.wait(std::chrono::seconds(60));
  INFO(result.out << result.err);
  CHECK(result.code == 75);
  CHECK(training.checkpoints() == 1);
}

TEST_CASE("without a place for checkpoints a notice ends nothing, and SIGTERM ends the job as ever") {
  const Preemptible training;
  Child child(training.job({"--standalone", "--nproc_per_node=2"},
                           {"--checkpoint.dir=", "--checkpoint.every_steps=0", "--train.epochs=1000",
                            "--train.preempt_signal=TERM", "--metrics.file=" + training.metrics().string()}),
              training.marker.variables());
  child.wait_until([&] { return training.under_way(); }, "the first step", std::chrono::seconds(60));
  child.signal(SIGUSR1);
  child.wait_for_err("SIGUSR1 was not passed to 2 of 2 workers");
  child.signal(SIGTERM);
  CHECK(child.wait(std::chrono::seconds(60)).code == 128 + SIGTERM);
}
