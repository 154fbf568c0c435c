#include <algorithm>
#include <csignal>
#include <cstdint>
#include <map>
#include <random>

#include "common/environment.h"
#include "worker/checkpoint/checkpoint.h"
#include "tests/process/save_watch.h"
#include "tests/process/training.h"
#include "tests/support/catch.h"

// A job that saves a checkpoint at each step is killed while it saves, again and again.
using namespace ddprun;
using namespace ddprun::testing;

namespace {

constexpr std::chrono::seconds bound{120};
// So many that a job is killed before it has made them, however late.
constexpr int epochs_until_kill = 10'000;

// The number of kills: 12 unless the environment sets it.
int wanted_kills() {
  const auto value = Environment::capture().get("DDPRUN_TEST_KILLS");
  return value ? std::stoi(*value) : 12;
}

// Returns the number of epochs with which a job goes on after this step.
int epochs_after(std::int64_t step, int steps_of_epoch) {
  return static_cast<int>(step) / steps_of_epoch + 1;
}

Words worker(const Training& training, int epochs, const Words& more) {
  Words words = training.job({}, {"--train.epochs=" + std::to_string(epochs), "--eval.every_epochs=0"});
  words.front() = DDPRUN_WORKER;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("a job that is killed at any act of a save goes on from the newest complete checkpoint, with the same bits") {
  constexpr int steps_of_epoch = 100;
  const int kills = wanted_kills();
  const Training training;
  const auto folder = training.folder / "checkpoints";
  std::mt19937 random(42);
  std::uniform_int_distribution<int> acts_until_kill(1, 40);
  std::map<bool, int> killed;  // by whether the folder had an incomplete checkpoint then
  std::int64_t newest = 0;
  for (int i = 0; i < kills; ++i) {
    const int last_act = acts_until_kill(random);
    CAPTURE(i, last_act);
    SaveWatch watch(folder);
    Child child(worker(training, epochs_until_kill, {"--checkpoint.every_steps=1", "--checkpoint.keep=1"}));
    child.wait_until([&] { return watch.acts() >= last_act; }, "act of a save", bound);
    child.signal(SIGKILL);
    REQUIRE(child.wait(bound).signal_number == SIGKILL);
    const bool incomplete = std::ranges::any_of(std::filesystem::directory_iterator(folder), [](const auto& entry) {
      return entry.path().filename().string().starts_with(".writing-");
    });
    ++killed[incomplete];
    const auto found = checkpoint::Checkpoints({.folder = folder}).newest();
    const std::int64_t step = found ? found->state.step : 0;
    CHECK(step >= std::max(newest, watch.published()));
    newest = step;
  }
  WARN(kills << " kills, " << killed[true] << " of them within a save, up to step " << newest);
  CHECK(killed[true] > 0);

  const int epochs = epochs_after(newest, steps_of_epoch);
  const auto rest = Child(worker(training, epochs, {"--checkpoint.every_steps=0"})).wait(bound);
  CHECK(rest.code == 0);
  CHECK(rest.out.find("going on from the checkpoint of step " + std::to_string(newest)) != std::string::npos);
  const auto undisturbed = Child(worker(training, epochs, {"--checkpoint.resume=never"})).wait(bound);
  CHECK(undisturbed.code == 0);
  CHECK(parameters_of(rest.out).size() == 64);
  CHECK(parameters_of(rest.out) == parameters_of(undisturbed.out));
}

TEST_CASE(
    "a job whose ranks save a part each goes on from the newest complete checkpoint when one is killed at any act") {
  constexpr int steps_of_epoch = 25;
  const int kills = wanted_kills() / 2;
  const Training training;
  const auto folder = training.folder / "checkpoints";
  const auto job = [&](int epochs, const Words& more) {
    Words overrides{"--parallel.zero=1", "--train.epochs=" + std::to_string(epochs), "--data.samples=1600",
                    "--eval.every_epochs=0"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return training.job({"--standalone", "--nproc_per_node=2", "--shutdown_timeout=1"}, overrides);
  };
  std::mt19937 random(43);
  std::uniform_int_distribution<int> acts_until_kill(1, 50);
  std::int64_t newest = 0;
  for (int i = 0; i < kills; ++i) {
    const int last_act = acts_until_kill(random);
    const std::string killed = std::to_string(i % 2);
    CAPTURE(i, last_act, killed);
    SaveWatch watch(folder);
    Child child(job(epochs_until_kill, {"--checkpoint.every_steps=1", "--checkpoint.keep=1"}),
                training.marker.variables());
    child.wait_until([&] { return watch.acts() >= last_act; }, "act of a save", bound);
    for (const pid_t worker : workers_of(training.marker, killed)) ::kill(worker, SIGKILL);
    CHECK(child.wait(bound).code != 0);
    const auto found = checkpoint::Checkpoints({.folder = folder}).newest();
    const std::int64_t step = found ? found->state.step : 0;
    CHECK((!found || found->has_parts));
    CHECK(step >= std::max(newest, watch.published()));
    newest = step;
  }
  const int epochs = epochs_after(newest, steps_of_epoch);
  const auto rest = Child(job(epochs, {"--checkpoint.every_steps=0"})).wait(bound);
  CHECK(rest.code == 0);
  CHECK(rest.out.find("going on from the checkpoint of step " + std::to_string(newest)) != std::string::npos);
  const auto undisturbed = Child(job(epochs, {"--checkpoint.resume=never", "--checkpoint.every_steps=0"})).wait(bound);
  CHECK(undisturbed.code == 0);
  CHECK(parameters_of(rest.out).size() == 64);
  CHECK(parameters_of(rest.out) == parameters_of(undisturbed.out));
}
