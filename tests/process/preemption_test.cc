#include <csignal>
#include <filesystem>

#include "common/atomic_file.h"
#include "tests/process/metrics_pipe.h"
#include "tests/process/training.h"
#include "tests/support/catch.h"

// A preemption request: all ranks stop after the same step, its checkpoint is complete, the exit code is 75, and the
// same command resumes with the bits of an uninterrupted run.
using namespace ddprun::testing;

namespace {

struct Preemptible : Training {
  TempDir runtime;  // where ddprun status finds this job, and no other

  // Checkpoints are written only on preemption and at the end.
  Words command(const Words& launch = {}, Words overrides = {}) const {
    overrides.insert(overrides.begin(), "--checkpoint.every_steps=1000000");
    Words options{"--standalone", "--nproc_per_node=2"};
    options.insert(options.end(), launch.begin(), launch.end());
    return job(options, overrides);
  }
  Variables variables() const {
    auto variables = marker.variables();
    variables["DDPRUN_RUNTIME_DIR"] = runtime.path().string();
    return variables;
  }
};

// A job that has completed its first step and cannot reach its last one before finish().
class BlockedJob {
 public:
  BlockedJob(const Preemptible& training, const Words& launch, Words overrides) : training_(training) {
    overrides.push_back("--metrics.file=" + metrics_.path());
    child_.emplace(training.command(launch, overrides), training.variables());
    child_->wait_until([&] { return metrics_.has_lines(); }, "the first step", std::chrono::seconds(60));
  }
  Child& child() { return *child_; }
  // The agent handles events in order: when it answers this later request it has forwarded the signal.
  void signal(int number) {
    child_->signal(number);
    Child({DDPRUN_PROGRAM, "status"}, training_.variables()).wait();
  }
  Child::Result finish() {
    metrics_.release();
    return child_->wait(std::chrono::seconds(60));
  }

 private:
  const Preemptible& training_;
  MetricsPipe metrics_;
  std::optional<Child> child_;
};

std::string uninterrupted_parameters() {
  const Preemptible training;
  const auto result = Child(training.command()).wait(std::chrono::seconds(100));
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

// Call after a preempted job: the same command resumes, and ends with the bits of an uninterrupted run.
void check_resumes(const Preemptible& training, const Words& launch, const Words& overrides,
                   const std::string& expected) {
  const auto result = Child(training.command(launch, overrides)).wait(std::chrono::seconds(100));
  INFO(result.out << result.err);
  CHECK(result.code == 0);
  CHECK(result.out.find("going on from the checkpoint of step ") != std::string::npos);
  CHECK(parameters_of(result.out) == expected);
}

// Returns the value of a line such as "SigBlk:\t0000000000000200" in /proc/<pid>/status: bit n-1 is signal n.
std::uint64_t signal_set(const std::string& status, const std::string& key) {
  const auto at = status.find("\n" + key + ":\t");
  REQUIRE(at != std::string::npos);
  return std::stoull(status.substr(at + key.size() + 3, 16), nullptr, 16);
}

}  // namespace

// A handler could run on a thread inside oneDNN, whose generated code uses the stack pointer for its data.
TEST_CASE("a training worker has no signal handler, and all of its threads block the preemption signal") {
  const Preemptible training;
  BlockedJob job(training, {}, {});
  const auto workers = workers_of(training.marker);
  REQUIRE(workers.size() == 2);
  constexpr std::uint64_t standard_signals = 0x7fffffff;  // the C library handles some real-time ones itself
  constexpr std::uint64_t usr1 = 1ull << (SIGUSR1 - 1);
  for (const pid_t pid : workers) {
    int threads = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
      const auto status = ddprun::read_whole_file(task.path() / "status");
      INFO(status);
      CHECK((signal_set(status, "SigCgt") & standard_signals) == 0);
      CHECK((signal_set(status, "SigBlk") & usr1) == usr1);
      ++threads;
    }
    CHECK(threads > 1);
  }
  ::kill(workers.front(), SIGUSR1);
  CHECK(job.finish().code == 75);
}

TEST_CASE(
    "preemption by SIGUSR1 or SIGTERM: exit code 75, one complete checkpoint, no restart, and the same bits after the "
    "resume") {
  const bool term = GENERATE(false, true);
  CAPTURE(term);
  const auto expected = uninterrupted_parameters();
  const Words launch{"--max_restarts=3"};
  const Words overrides = term ? Words{"--train.preempt_signal=TERM"} : Words{};
  const Preemptible training;
  BlockedJob job(training, launch, overrides);
  job.signal(term ? SIGTERM : SIGUSR1);
  const auto result = job.finish();
  INFO(result.out << result.err);
  REQUIRE(result.code == 75);
  CHECK(result.out.find("preempted at step ") != std::string::npos);
  CHECK(result.err.find("new round") == std::string::npos);
  CHECK(result.err.find("FAILED") == std::string::npos);
  CHECK(training.checkpoints() == 1);
  CHECK(training.marker.processes() == 0);
  check_resumes(training, launch, overrides, expected);
}

TEST_CASE("a preemption request to one rank stops all ranks after the same step") {
  const std::string backend = GENERATE("shm", "gloo");
  const std::string rank = GENERATE("0", "1");
  CAPTURE(backend, rank);
  const Preemptible training;
  BlockedJob job(training, {}, {"--dist.backend=" + backend});
  const auto workers = workers_of(training.marker, rank);
  REQUIRE(workers.size() == 1);
  ::kill(workers.front(), SIGUSR1);
  const auto result = job.finish();
  INFO(result.out << result.err);
  CHECK(result.code == 75);
  CHECK(training.checkpoints() == 1);
}

TEST_CASE("without a checkpoint folder a preemption request is not forwarded, and SIGTERM ends the job") {
  Preemptible training;
  training.train_keys = "preempt_signal = TERM\n";
  BlockedJob job(training, {}, {"--checkpoint.dir=", "--checkpoint.every_steps=0"});
  job.child().signal(SIGUSR1);
  job.child().wait_for_err("SIGUSR1 was not passed to 2 of 2 workers");
  job.child().signal(SIGTERM);
  CHECK(job.child().wait(std::chrono::seconds(60)).code == 128 + SIGTERM);
}
