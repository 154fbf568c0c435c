#include <algorithm>
#include <csignal>

#include "common/atomic_file.h"
#include "tests/process/metrics_pipe.h"
#include "tests/process/training.h"
#include "tests/support/catch.h"
#include "tests/support/in_time.h"

// data.ledger of jobs that lose ranks, are restarted, stop and continue with other ranks.
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds bound{120};

// The job has 80 steps of 40 samples, whatever the number of ranks.
Words job_of(const Training& training, const Words& launch, const Words& more = {}) {
  Words overrides{"--data.ledger=" + (training.folder / "ledger").string(), "--train.batch_size=0",
                  "--train.global_batch_size=40", "--data.samples=1600"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  Words all{"--standalone"};
  all.insert(all.end(), launch.begin(), launch.end());
  return training.job(all, overrides);
}

std::string ledger_of(const Training& training) {
  return std::filesystem::exists(training.folder / "ledger") ? ddprun::read_whole_file(training.folder / "ledger") : "";
}

void wait_for_step(Child& child, const Training& training, int step) {
  child.wait_until(
      [&] { return ledger_of(training).find("\"step\": " + std::to_string(step) + ",") != std::string::npos; },
      "step " + std::to_string(step), bound);
}

// Returns the step that the ledger has last.
int last_step(const Training& training) {
  const auto text = ledger_of(training);
  const std::string key = "\"step\": ";
  const auto at = text.rfind(key);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + key.size());
}

// Returns the name of its folder; empty if there is none.
std::string newest_checkpoint(const Training& training) {
  std::string newest;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(training.folder / "checkpoints", absent))
    if (const auto name = entry.path().filename().string(); name.starts_with("step_")) newest = std::max(newest, name);
  return newest;
}

void kill_rank(const Training& training, int rank) {
  const auto pids = workers_of(training.marker, std::to_string(rank));
  if (pids.size() != 1 || ::kill(pids.front(), SIGKILL) != 0) throw TooLate();
}

Child::Result verify(const std::filesystem::path& ledger) {
  return Child({DDPRUN_WORKER, "ledger", "verify", ledger.string()}).wait(bound);
}

std::string undisturbed_hash() {
  const Training training;
  const auto result = Child(job_of(training, {"--nproc_per_node=4"})).wait(bound);
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto verdict = verify(training.folder / "ledger");
  INFO(verdict.out + verdict.err);
  CHECK(verdict.code == 0);
  CHECK(verdict.out.find("80 steps in 1 sessions") == 0);
  CHECK(verdict.out.find("2 complete epochs, 3200 samples, each once in its epoch; 0 left out") != std::string::npos);
  return parameters_of(verdict.out);
}

}  // namespace

TEST_CASE("a run with faults, a restart and other numbers of ranks has the ledger of an undisturbed one") {
  const auto expected = undisturbed_hash();
  REQUIRE(expected.size() == 64);

  in_time([&] {
    const Training training;
    Child first(job_of(training, {"--nproc_per_node=4", "--max_restarts=2"}, {"--train.max_steps=45"}),
                training.marker.variables());
    wait_for_step(first, training, 5);
    kill_rank(training, 0);  // rank 0 writes the ledger
    first.wait_for_err("in generation 1 of their group", bound);
    wait_for_step(first, training, last_step(training) + 2);  // it is one of that generation
    kill_rank(training, 2);
    auto result = first.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.err.find("restart 2 of 2: a replacement for this rank alone") != std::string::npos);

    Child second(job_of(training, {"--nproc_per_node=3", "--max_restarts=1"}, {"--recovery.mode=restart"}),
                 training.marker.variables());
    // The run goes on from a checkpoint of this session, which is therefore among those that made the result.
    second.wait_until([&] { return newest_checkpoint(training) > "step_000045"; }, "a checkpoint", bound);
    kill_rank(training, 1);
    result = second.wait(bound);
    INFO(result.err);
    CHECK(result.code == 0);
    CHECK(result.err.find("new round") != std::string::npos);

    const auto verdict = verify(training.folder / "ledger");
    INFO(verdict.out + verdict.err);
    CHECK(verdict.code == 0);
    CHECK(parameters_of(verdict.out) == expected);
    CHECK(verdict.out.find("80 steps in 5 sessions") == 0);
  });
}

TEST_CASE("a run that is preempted and resumed with another number of ranks has the ledger of an undisturbed one") {
  const Training training;
  MetricsPipe metrics;
  Child first(job_of(training, {"--nproc_per_node=4"}, {"--metrics.file=" + metrics.path()}));
  first.wait_until([&] { return metrics.has_lines(); }, "the first step", bound);
  first.signal(SIGUSR1);
  metrics.release();
  const auto preempted = first.wait(bound);
  INFO(preempted.out + preempted.err);
  REQUIRE(preempted.code == 75);
  CHECK(Child(job_of(training, {"--nproc_per_node=2"})).wait(bound).code == 0);

  const auto verdict = verify(training.folder / "ledger");
  INFO(verdict.out + verdict.err);
  CHECK(verdict.code == 0);
  CHECK(verdict.out.find("80 steps in 2 sessions") == 0);
  CHECK(parameters_of(verdict.out) == undisturbed_hash());
}

TEST_CASE("a ledger that lacks a step, or no ledger, is refused with the reason") {
  const Training training;
  REQUIRE(Child(job_of(training, {"--nproc_per_node=2"})).wait(bound).code == 0);
  auto text = ledger_of(training);
  const auto step = text.find("\"step\": 7,");
  const auto begin = text.rfind('\n', step);
  text.erase(begin, text.find('\n', step) - begin);
  std::ofstream(training.folder / "torn") << text;
  const auto torn = verify(training.folder / "torn");
  CHECK(torn.code == 1);
  CHECK(torn.err.find("the ledger has 2 problems, of which the first is: steps 7 to 7 are missing") !=
        std::string::npos);
  const auto absent = verify(training.folder / "absent");
  CHECK(absent.code == 1);
  CHECK(absent.err.find("absent") != std::string::npos);
  const auto usage = Child({DDPRUN_WORKER, "ledger", "prove"}).wait(bound);
  CHECK(usage.code == 2);
  CHECK(usage.err.find("expected: ddprun-worker ledger verify FILE...") != std::string::npos);
}
