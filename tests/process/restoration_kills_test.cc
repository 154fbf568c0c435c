#include <csignal>

#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"

// A second rank is killed while the ranks get the state again after the loss of a first one.
using namespace ddprun::testing;

namespace {

constexpr int most_attempts = 10;

// A state that takes some ten milliseconds to copy.
Words job_of(const Training& training, const Words& launch, const Words& more) {
  Words all{"--standalone", "--nproc_per_node=4"};
  all.insert(all.end(), launch.begin(), launch.end());
  auto overrides = recorded(training, {"--model.name=mlp", "--model.hidden=1024 1024", "--optim.name=adam"});
  for (auto& each : overrides)
    if (each.starts_with("--data.samples=")) each = "--data.samples=600";  // 30 steps
  overrides.insert(overrides.end(), more.begin(), more.end());
  return training.job(all, overrides);
}

std::string undisturbed_digest(const Words& more) {
  const Training training;
  const auto result = Child(job_of(training, {}, more)).wait(bound);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return parameters_of(result.out);
}

// Kills rank 2, and a second rank once the others have a group again, and checks how the job ends. Returns whether the
// state was not restored yet: rank 0, without which it cannot be, is stopped until then, but may be so too late.
bool is_killed_within_restoration(const Words& layout, int second, const std::string& expected) {
  const Training training;
  Child child(job_of(training, {"--max_restarts=2"}, layout), training.marker.variables());
  wait_for_step(child, training, 10);
  auto workers = workers_by_rank(training);
  REQUIRE(workers.size() == ranks);
  const pid_t source = workers.at(0);
  const auto groups = [&] { return occurrences(child.out() + child.err(), "info: back end"); };
  const int groups_before = groups();
  ::kill(workers.at(2), SIGKILL);
  child.wait_until([&] { return groups() > groups_before; }, "another group, in which the state is restored", bound);
  ::kill(source, SIGSTOP);
  if (second == 2) workers = workers_by_rank(training);
  REQUIRE(workers.contains(second));
  ::kill(workers.at(second), SIGKILL);
  ::kill(source, SIGCONT);
  const auto result = child.wait(bound);
  INFO(result.out + result.err);
  CHECK(result.code == 0);
  CHECK(parameters_of(result.out) == expected);
  CHECK(recorded_steps(training) == first_steps(30));
  CHECK(occurrences(result.err, "a replacement for this rank alone") == 2);
  CHECK(occurrences(result.err, "new round") == 0);
  CHECK(training.marker.processes() == 0);
  return occurrences(result.out + result.err, "in generation 1 of their group") == 0;
}

}  // namespace

TEST_CASE("a rank that is killed while the state is restored is another lost rank: the run ends with the same bits") {
  const auto layout = GENERATE(Words{}, Words{"--parallel.zero=1", "--checkpoint.peers=1"}, Words{"--parallel.zero=1"},
                               Words{"--parallel.zero=3", "--checkpoint.peers=1"});
  const int second = GENERATE(0, 2, 3);  // rank 0 gives others the run's position, rank 2 is the replacement
  CAPTURE(layout, second);
  const auto expected = undisturbed_digest(layout);
  REQUIRE(expected.size() == 64);
  bool within = false;
  for (int attempt = 0; attempt < most_attempts && !within; ++attempt)
    within = is_killed_within_restoration(layout, second, expected);
  CHECK(within);
}
