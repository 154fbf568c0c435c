#include <algorithm>
#include <csignal>

#include "tests/process/training.h"
#include "tests/support/catch.h"

// --chaos: faults that ddprun injects into its own job, and the account of them at its end.
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds bound{120};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

Child::Result train(const Words& launch, const std::string& samples = "9600") {
  const Training training;
  Words all{"--standalone", "--nproc_per_node=2"};
  all.insert(all.end(), launch.begin(), launch.end());
  return Child(training.job(all, {"--data.samples=" + samples})).wait(bound);
}

}  // namespace

// The mean time between two kills is a quarter of what the job takes here, so that a job gets on between them however
// slow the machine is. With this seed the first kill comes after an eighth.
TEST_CASE("a job whose workers --chaos kills ends with the same bits, and says what its recoveries cost") {
  const auto begin = std::chrono::steady_clock::now();
  const auto undisturbed = train({}, "19200");
  const auto duration = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  REQUIRE(undisturbed.code == 0);
  CHECK(count(undisturbed.err, "goodput") == 0);
  const auto kills_at = "--chaos=kill:" + std::to_string(duration.count() / 4) + "ms;seed=48";
  const auto result = train({"--max_restarts=1000", kills_at}, "19200");
  INFO(result.err);
  CHECK(result.code == 0);
  CHECK(parameters_of(result.out + result.err) == parameters_of(undisturbed.out + undisturbed.err));
  const auto kills = count(result.err, "--chaos sent SIGKILL to the worker of local rank");
  CHECK(kills > 0);
  CHECK(count(result.err, "failed: --chaos sent it SIGKILL; restart ") > 0);
  CHECK_THAT(result.err, Catch::Contains("info: goodput ") && Catch::Contains(" s of training; lost: ") &&
                             Catch::Contains("signal ") && Catch::Contains("computed again"));
}

TEST_CASE("a worker that --chaos freezes runs again after the duration") {
  const auto result = train({"--chaos=freeze:300ms/30ms"});
  INFO(result.err);
  CHECK(result.code == 0);
  const auto stopped = count(result.err, "--chaos sent SIGSTOP to the worker of local rank");
  CHECK(stopped > 0);
  // The last one may end the job before its worker was let run, or the job has ended it.
  CHECK(count(result.err, "--chaos sent SIGCONT to the worker of local rank") + 1 >= stopped);
}

TEST_CASE("the workers of any program are killed, and a budget that is used ends the job with the reason") {
  const auto result = Child({DDPRUN_PROGRAM, "--standalone", "--nproc_per_node=2", "--max_restarts=2",
                             "--chaos=kill:20ms;seed=1", VICTIM_PROGRAM, "pause"})
                          .wait(bound);
  INFO(result.err);
  CHECK(result.code == 128 + SIGKILL);
  CHECK(count(result.err, "goodput") == 0);  // nobody knows when the program trains
  CHECK(count(result.err, "--chaos sent SIGKILL to the worker of local rank") >= 3);
  CHECK_THAT(result.err, Catch::Contains("--chaos sent it SIGKILL"));
}

TEST_CASE("a list of faults that is none is a usage error") {
  const auto result = Child({DDPRUN_PROGRAM, "--chaos=burn:1s", VICTIM_PROGRAM, "exit=0"}).wait(bound);
  CHECK(result.code == 2);
  CHECK(result.err ==
        "[ddprun] error: --chaos: burn:1s: expected kill:TIME, freeze:TIME[/DURATION], cut:TIME[/DURATION], leave:TIME "
        "or join:TIME\n");
}
