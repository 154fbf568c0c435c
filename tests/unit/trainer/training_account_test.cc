#include "worker/trainer/report/training_account.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::trainer;
using namespace std::chrono_literals;
using profiler::Seconds;
using profiler::StepTimes;

namespace {

// Returns a time that the test advances; the wall clock starts at 1,000 s.
TrainingAccount::Now at(double seconds) {
  return {.steady = Seconds(seconds), .wall = std::chrono::milliseconds(1'000'000 + std::llround(1000 * seconds))};
}

TrainingAccount::Steps step(std::int64_t number, double seconds, std::optional<double> loss = 0.5) {
  return {.step = number,
          .total = 10,
          .epoch = 1,
          .epochs = 2,
          .samples = 100,
          .loss = loss,
          .learning_rate = 0.1,
          .times = {.data = Seconds(seconds / 4), .forward = Seconds(seconds / 2), .wait = Seconds(seconds / 4)}};
}

TrainingAccount started() {
  TrainingAccount account;
  account.start(at(0), {.pid = 7, .rank = 1, .size = 2});
  return account;
}

}  // namespace

TEST_CASE("a record says where the run is, how fast it goes, and how long it will take") {
  auto account = started();
  account.steps_done(at(2), step(1, 2));
  const auto& record = account.record();
  CHECK(record.pid == 7);
  CHECK(record.rank == 1);
  CHECK(record.world_size == 2);
  CHECK(record.time_ms == 1'002'000);
  CHECK(record.step == 1);
  CHECK(record.total_steps == 10);
  CHECK(record.epochs == 2);
  CHECK(record.loss == 0.5);
  CHECK(record.samples_per_s == 50);
  CHECK(record.seconds_left == 18);
  CHECK(record.data == 0.5);
  CHECK(record.compute == 1);
  CHECK(record.communication == 0.5);
  CHECK(std::isnan(record.gradient_norm));
}

TEST_CASE("the rate is that of the last second, and of the last step where that is longer") {
  auto account = started();
  account.steps_done(at(0.5), step(1, 0.5));
  CHECK(account.record().samples_per_s == 200);
  account.steps_done(at(0.75), step(2, 0.25));  // a second has not passed yet
  CHECK(account.record().samples_per_s == 200);
  account.steps_done(at(1.75), step(3, 1));
  CHECK(account.record().samples_per_s == 160);
  account.steps_done(at(3.75), step(4, 2));
  CHECK(account.record().samples_per_s == 50);
}

TEST_CASE("a loss that is not known yet leaves the last one") {
  auto account = started();
  account.steps_done(at(1), step(1, 1, 0.7));
  account.steps_done(at(2), step(2, 1, std::nullopt));
  CHECK(account.record().loss == 0.7);
}

TEST_CASE("the time between two steps counts as a checkpoint's if one was begun, and as an evaluation's") {
  auto account = started();
  account.steps_done(at(1), step(1, 1));
  account.steps_done(at(5), step(2, 1));  // three seconds went to something else
  CHECK(account.record().checkpoint == 0);
  CHECK(account.record().checkpoint_ms == 0);
  account.evaluated(at(7), 0.4, 0.9);
  account.checkpoint_begins();
  account.steps_done(at(11), step(3, 1));
  const auto& record = account.record();
  CHECK(record.evaluation == 2);
  CHECK(record.evaluation_step == 2);
  CHECK(record.evaluation_loss == 0.4);
  CHECK(record.accuracy == 0.9);
  CHECK(record.checkpoint == 3);
  CHECK(record.checkpoint_ms == 0);  // it is still being written
  account.checkpoint_saved(2, std::chrono::milliseconds(1'010'500));
  CHECK(record.checkpoint_step == 2);
  CHECK(record.checkpoint_ms == 1'010'500);
  account.checkpoint_begins();
  account.run_finished(at(12));
  CHECK(record.checkpoint == 4);
  CHECK(record.checkpoint_step == 2);
}

TEST_CASE("steps that are repeated after a fault count once") {
  auto account = started();
  account.steps_done(at(1), step(1, 1));
  account.steps_done(at(2), step(2, 1));
  account.checkpoint_begins();  // a fault interrupts the step after it
  account.start(at(5), {.pid = 7, .rank = 1, .size = 2});
  account.steps_repeated(at(5), step(2, 1));
  CHECK(account.record().steps == 2);
  CHECK(account.record().samples == 200);
  CHECK(account.record().step_seconds() == 2);
  account.steps_done(at(6), step(3, 1));
  CHECK(account.record().steps == 3);
  CHECK(account.record().checkpoint == 0);
}

TEST_CASE("a process that replaces another one says where the run stands and counts its own steps") {
  auto account = started();
  account.steps_repeated(at(1), step(8, 1));
  CHECK(account.record().step == 8);
  CHECK(account.record().total_steps == 10);
  CHECK(account.record().loss == 0.5);
  CHECK(account.record().steps == 0);
  account.steps_done(at(2), step(9, 1));
  CHECK(account.record().steps == 1);
  CHECK(account.record().seconds_left == 1);
}

TEST_CASE("a record asks for a standby process from the start if the run wants one") {
  CHECK(started().record().wants_standby == 0);
  TrainingAccount account(true);
  account.start(at(0), {.pid = 7, .rank = 1, .size = 2});
  CHECK(account.record().wants_standby == 1);
}

TEST_CASE("each step counts in the bucket of its duration") {
  auto account = started();
  account.steps_done(at(1), step(1, 0.001));
  account.steps_done(at(2), step(2, 0.002));
  account.steps_done(at(500), step(3, 400));
  auto four = step(7, 0.008);  // 2 ms each
  four.count = 4;
  account.steps_done(at(501), four);
  const auto& counts = account.record().step_counts;
  CHECK(counts.front() == 1);
  CHECK(counts[1] == 5);
  CHECK(counts.back() == 1);
  CHECK(account.record().steps == 7);
  CHECK(account.record().first_step_ms == 1'001'000);
}

TEST_CASE("the record has the time of the first step in the present process group") {
  auto account = started();
  account.steps_done(at(1), step(1, 0.001));
  account.steps_done(at(2), step(2, 0.001));
  account.start(at(3), {});
  CHECK(account.record().first_step_ms == 0);
  account.steps_done(at(4), step(3, 0.001));
  account.steps_done(at(5), step(4, 0.001));
  CHECK(account.record().first_step_ms == 1'004'000);
  CHECK(account.record().steps == 4);
}

TEST_CASE("a rank is late by what it takes on its own beyond the median of all") {
  const auto own = [](double seconds) { return StepTimes{.forward = Seconds(seconds), .wait = Seconds(100)}; };
  const std::vector<StepTimes> ranks{own(20), own(60), own(22), own(10)};
  CHECK(lateness_of(ranks, 1, 20) == 2);
  CHECK(lateness_of(ranks, 0, 20) == 0);
  CHECK(lateness_of(ranks, 3, 20) == 0);
  CHECK(lateness_of({own(1), own(3)}, 1, 1) == 2);
  auto account = started();
  auto known = step(1, 1);
  known.rank_times = {own(20), own(60)};
  known.rank_steps = 20;
  account.steps_done(at(1), known);
  CHECK(account.record().lateness == 2);
  account.steps_done(at(2), step(2, 1));
  CHECK(account.record().lateness == 2);
}
