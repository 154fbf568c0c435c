#include <csignal>
#include <filesystem>
#include <set>
#include <string>

#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"

// A worker that is lost is replaced by a process that was started before and has waited (recovery.standby).
using namespace ddprun::testing;

namespace {

Words job_of(const Training& training, const Words& launch, const Words& more = {}) {
  Words all{"--standalone", "--nproc_per_node=4"}, overrides{"--dist.freeze_bound=300"};
  all.insert(all.end(), launch.begin(), launch.end());
  overrides.insert(overrides.end(), more.begin(), more.end());
  return training.job(all, recorded(training, overrides));
}

std::string undisturbed_digest(const Words& overrides) {
  const Training training;
  const auto result = Child(job_of(training, {}, overrides)).wait(bound);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

// While it lives, rank 1 is stopped, and the others wait for it: the job does not end meanwhile.
class Held {
 public:
  Held(Child& child, const Training& training) : worker_(all_workers(child, training).at(1)) {
    ::kill(worker_, SIGSTOP);
  }
  ~Held() { ::kill(worker_, SIGCONT); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  const pid_t worker_;
};

pid_t wait_for_standby(Child& child, const Training& training) {
  pid_t standby = -1;
  child.wait_until(
      [&] {
        standby = training.marker.process_named("ddprun-standby");
        return standby > 0 || is_done(child);
      },
      "a process that stands by", bound);
  if (is_done(child)) throw TooLate();
  return standby;
}

void check_undisturbed(const Child::Result& result, const Training& training, const Words& overrides = {}) {
  INFO(result.out + result.err);
  CHECK(result.code == 0);
  const auto digest = parameters_of(result.out);
  CHECK(digest.size() == 64);
  CHECK(digest == undisturbed_digest(overrides));
  CHECK(recorded_steps(training) == first_steps(80));
  CHECK(occurrences(result.err, "new round") == 0);
  CHECK(training.marker.processes() == 0);
}

bool has_variable(pid_t pid, const std::string& beginning) {
  const auto text = '\0' + proc_text(std::to_string(pid), "environ");
  return text.find('\0' + beginning) != std::string::npos;
}

bool any_stands_by(const Marker& marker) {
  for (const pid_t pid : marker.pids())
    if (has_variable(pid, "DDPRUN_STANDBY=")) return true;
  return false;
}

}  // namespace

TEST_CASE("the process that stands by takes the place of a lost rank, with the same bits and each step once") {
  // The second job has all kinds of state that a step changes.
  const auto overrides = GENERATE(
      Words{}, Words{"--model.name=cnn_bn", "--train.ema=0.9", "--train.precision=fp16", "--optim.skip_outliers=5",
                     "--optim.schedule=plateau", "--train.loss_scale_growth_interval=3"});
  CAPTURE(overrides);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=3"}, overrides), training.marker.variables());
    std::int64_t step = 10;
    for (const int rank : {2, 0, 3}) {
      CAPTURE(rank);
      wait_for_step(child, training, step);
      const Held held(child, training);
      const auto standby = wait_for_standby(child, training);
      CHECK(has_variable(standby, "DDPRUN_STANDBY="));
      replace(child, training, rank);
      const auto workers = workers_by_rank(training);
      CHECK(workers.at(rank) == standby);
      CHECK_FALSE(has_variable(standby, "DDPRUN_STANDBY="));
      CHECK(has_variable(standby, "LOCAL_RANK=" + std::to_string(rank) + '\0'));
      for (const auto* file : {"comm", "oom_score_adj"})
        CHECK(proc_text(std::to_string(standby), file) == proc_text(std::to_string(workers.at(1)), file));
      step = recorded_steps(training).back() + 5;
    }
    const auto result = child.wait(bound);
    check_undisturbed(result, training, overrides);
    CHECK(occurrences(result.err, "a replacement for this rank alone") == 3);
  });
}

TEST_CASE("a process that stood by and was killed or frozen is not missed") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  CAPTURE(signal);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=1"}), training.marker.variables());
    wait_for_step(child, training, 10);
    {
      const Held held(child, training);
      const auto standby = wait_for_standby(child, training);
      REQUIRE(::kill(standby, signal) == 0);
      // Until its agent knows of its end it might be adopted, and its end would be one more failure of the rank.
      if (signal == SIGKILL)
        child.wait_until([&] { return !std::filesystem::exists("/proc/" + std::to_string(standby)); }, "its end");
      if (signal == SIGSTOP) child.wait_until([&] { return training.marker.processes('T') == 2; }, "its stop");
      replace(child, training, 2);
      CHECK(workers_by_rank(training)[2] != standby);
    }
    check_undisturbed(child.wait(bound), training);
  });
}

TEST_CASE("a process that stands by may be killed before or while it takes the place of a lost rank") {
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=6"}), training.marker.variables());
    std::int64_t step = 10;
    for (const bool worker_first : {false, true, true}) {
      wait_for_step(child, training, step);
      const Held held(child, training);
      const auto standby = wait_for_standby(child, training);
      const auto worker = workers_by_rank(training).at(3);
      REQUIRE(::kill(worker_first ? worker : standby, SIGKILL) == 0);
      REQUIRE(::kill(worker_first ? standby : worker, SIGKILL) == 0);
      const std::set<pid_t> killed{worker, standby};
      child.wait_until(
          [&] {
            const auto now = workers_by_rank(training);
            return now.size() == ranks && !killed.contains(now.at(3));
          },
          "another worker of rank 3", bound);
      step = recorded_steps(training).back() + 5;
    }
    check_undisturbed(child.wait(bound), training);
  });
}

TEST_CASE("no process of a job remains where one stood by at its end") {
  const int signal = GENERATE(0, SIGTERM, SIGKILL);
  CAPTURE(signal);
  in_time([&] {
    const Training training;
    Child child(job_of(training, {"--max_restarts=1"}), training.marker.variables());
    wait_for_step(child, training, 10);
    {
      const Held held(child, training);
      wait_for_standby(child, training);
      if (signal != 0) child.signal(signal);
    }
    const auto result = child.wait(bound);
    if (signal == 0) return check_undisturbed(result, training);
    if (signal == SIGTERM) CHECK(result.code == 128 + SIGTERM);
    child.wait_until([&] { return training.marker.processes() == 0; }, "the end of every process");
  });
}

TEST_CASE("no process stands by with recovery.standby = false, nor for a program that does not know of it") {
  in_time([&] {
    const Training without;
    Child first(job_of(without, {"--max_restarts=1"}, {"--recovery.standby=false"}), without.marker.variables());
    const Marker other;
    Child second(command(two_workers({"--max_restarts=1"}), {"pause"}), other.variables());
    wait_for_step(first, without, 1);
    const Held held(first, without);
    second.wait_until([&] { return workers_of(other).size() == 2; }, "both workers");
    // Agents ask their workers at the same intervals from their start on, and this agent starts last.
    const Training with;
    Child last(job_of(with, {"--max_restarts=1"}), with.marker.variables());
    // A rank that takes part in a step has published the one before.
    wait_for_step(last, with, 2);
    const Held other_held(last, with);
    wait_for_standby(last, with);
    CHECK_FALSE(any_stands_by(without.marker));
    CHECK_FALSE(any_stands_by(other));
  });
}
