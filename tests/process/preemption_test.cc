#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "ddprun/common/unique_fd.h"
#include "tests/process/training.h"
#include "tests/support/catch.h"

// A notice to make room: all ranks stop behind the same step, its checkpoint is complete, the exit code says so, and
// the same command goes on as if nothing had happened.
using namespace ddprun::testing;

namespace {

// Where rank 0 writes a line after each step: a pipe that has room for a part of a job's. Until it is let go a job has
// done a step or more and has more to do, however long anything else takes.
class Brake {
 public:
  Brake() {
    REQUIRE(::mkfifo(path().c_str(), 0600) == 0);
    pipe_ = ddprun::UniqueFd(::open(path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    REQUIRE(::fcntl(pipe_.get(), F_SETPIPE_SZ, 4096) == 4096);  // a hundred steps make 15 KB
  }
  std::string path() const { return (folder_ / "metrics").string(); }
  bool under_way() const {
    int bytes = 0;
    return ::ioctl(pipe_.get(), FIONREAD, &bytes) == 0 && bytes > 0;
  }
  void let_go() {
    REQUIRE(::fcntl(pipe_.get(), F_SETPIPE_SZ, 1 << 16) == 1 << 16);
    char lines[4096];
    REQUIRE(::read(pipe_.get(), lines, sizeof lines) > 0);  // a writer wakes when somebody has read
  }

 private:
  TempDir folder_;
  ddprun::UniqueFd pipe_;
};

struct Preemptible : Training {
  TempDir runtime;  // where ddprun status finds this job, and no other

  // No checkpoint but the one that a notice asks for, and the one at the end.
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

// A job that has done its first step and does not come to its last while it is held.
class HeldJob {
 public:
  HeldJob(const Preemptible& training, const Words& launch, Words overrides) : training_(training) {
    overrides.push_back("--metrics.file=" + brake_.path());
    child_.emplace(training.command(launch, overrides), training.variables());
    child_->wait_until([&] { return brake_.under_way(); }, "the first step", std::chrono::seconds(60));
  }
  Child& child() { return *child_; }
  // The agent has passed the signal on when it answers: that question came later.
  void signal(int number) {
    child_->signal(number);
    Child({DDPRUN_PROGRAM, "status"}, training_.variables()).wait();
  }
  Child::Result let_go() {
    brake_.let_go();
    return child_->wait(std::chrono::seconds(60));
  }

 private:
  const Preemptible& training_;
  Brake brake_;
  std::optional<Child> child_;
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
  HeldJob job(training, launch, overrides);
  job.signal(term ? SIGTERM : SIGUSR1);
  const auto result = job.let_go();
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
  HeldJob job(training, {}, {});
  const auto workers = workers_of(training.marker, rank);
  REQUIRE(workers.size() == 1);
  ::kill(workers.front(), SIGUSR1);
  const auto result = job.let_go();
  INFO(result.out << result.err);
  CHECK(result.code == 75);
  CHECK(training.checkpoints() == 1);
}

TEST_CASE("without a place for checkpoints a notice ends nothing, and SIGTERM ends the job as ever") {
  const Preemptible training;
  HeldJob job(training, {}, {"--checkpoint.dir=", "--checkpoint.every_steps=0", "--train.preempt_signal=TERM"});
  job.child().signal(SIGUSR1);
  job.child().wait_for_err("SIGUSR1 was not passed to 2 of 2 workers");
  job.child().signal(SIGTERM);
  CHECK(job.child().wait(std::chrono::seconds(60)).code == 128 + SIGTERM);
}
