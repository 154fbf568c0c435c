#include <csignal>

#include "tests/process/recorded_training.h"
#include "tests/support/catch.h"

// A second rank is killed while the ranks get the state again after the loss of a first one.
using namespace ddprun::testing;

namespace {

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

}  // namespace

TEST_CASE("a rank that is killed while the state is restored is another lost rank: the run ends with the same bits") {
  const auto layout = GENERATE(Words{}, Words{"--parallel.zero=1", "--checkpoint.peers=1"}, Words{"--parallel.zero=1"},
                               Words{"--parallel.zero=3", "--checkpoint.peers=1"});
  const int second = GENERATE(0, 2, 3);  // rank 0 gives others the run's position, rank 2 is the replacement
  CAPTURE(layout, second);
  const auto expected = undisturbed_digest(layout);
  REQUIRE(expected.size() == 64);
  const Training training;
  Child child(job_of(training, {"--max_restarts=2"}, layout), training.marker.variables());
  wait_for_step(child, training, 10);
  const auto before = workers_by_rank(training);
  REQUIRE(before.size() == ranks);
  const auto groups = [&] { return occurrences(child.out() + child.err(), "info: back end"); };
  const int groups_before = groups();
  ::kill(before.at(2), SIGKILL);
  child.wait_until([&] { return groups() > groups_before; }, "another group, in which the state is restored", bound);
  const auto now = workers_by_rank(training);
  REQUIRE(now.contains(second));
  ::kill(now.at(second), SIGKILL);
  const auto result = child.wait(bound);
  INFO(result.out + result.err);
  const bool within = occurrences(result.out + result.err, "in generation 1 of their group") == 0;
  WARN("rank " << second << " was killed " << (within ? "within" : "after") << " the restoration");
  CHECK(result.code == 0);
  CHECK(parameters_of(result.out) == expected);
  CHECK(recorded_steps(training) == first_steps(30));
  CHECK(occurrences(result.err, "a replacement for this rank alone") == 2);
  CHECK(occurrences(result.err, "new round") == 0);
  CHECK(training.marker.processes() == 0);
}
