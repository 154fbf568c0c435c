// metrics.tensorboard, read by a reader of its own.
#include "worker/trainer/report/event_file.h"

#include <regex>

#include "common/error.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/event_reader.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/records.h"

using namespace ddprun;
using namespace ddprun::testing;
using trainer::EventFile;

TEST_CASE("an event file has a version, and the scalars that were added") {
  const TempDir dir;
  EventFile file(dir / "new/logs", 1);
  file.add(1, {{"train/loss", 2.5}, {"a tag of more than 127 bytes " + std::string(200, 'x'), -1e30}});
  file.add(300, {{"train/loss", 0.125}});
  file.flush();
  CHECK(
      std::regex_match(file.path().filename().string(), std::regex(R"(events\.out\.tfevents\.\d{10}\.[^/]+\.\d+\.0)")));
  const auto events = events_in(file.path());
  REQUIRE(events.size() == 3);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].wall_time > 1.6e9);
  CHECK(!events[0].starts_session);
  CHECK(events[1].step == 1);
  CHECK(events[1].scalars.at("train/loss") == 2.5F);
  CHECK(events[1].scalars.size() == 2);
  CHECK(events[1].scalars.rbegin()->second == 2.5F);
  CHECK(events[1].scalars.begin()->second == -1e30F);
  CHECK(events[2].step == 300);
  CHECK(events[2].scalars == std::map<std::string, float>{{"train/loss", 0.125F}});
}

TEST_CASE("files of one second have names of their own, and a folder that cannot be is named") {
  const TempDir dir;
  const EventFile first(dir.path(), 1), second(dir.path(), 7);
  CHECK(first.path() != second.path());
  const auto events = events_in(second.path());
  REQUIRE(events.size() == 2);
  CHECK(events[1].starts_session);
  CHECK(events[1].step == 7);
  CHECK_THROWS_WITH(EventFile(first.path() / "below", 1), Catch::Contains("cannot open " + first.path().string()));
}

TEST_CASE("a job's scalars are those of its metrics, one file for each time that it runs") {
  const TempDir dir;
  const auto run = [&](int steps) {
    TrainingJob(
        "[model]\nname = linear\n[data]\nname = digits\nsamples = 96\ntest_samples = 32\n"
        "[train]\nbatch_size = 8\nepochs = 3\nmax_steps = " +
        std::to_string(steps) + "\n[optim]\nclip_norm = 1\n[checkpoint]\ndir = " + (dir / "c").string() +
        "\n[metrics]\nfile = " + (dir / "m").string() + "\ntensorboard = " + (dir / "logs").string() + "\n")
        .run(2);
  };
  run(7);
  REQUIRE(files_in(dir / "logs").size() == 1);
  const auto records = step_records(dir / "m");
  const auto first = files_in(dir / "logs")[0];
  const auto events = events_in(first);
  std::size_t steps = 0, evaluations = 0;
  for (const auto& event : events) {
    if (event.scalars.contains("eval/accuracy")) ++evaluations;
    if (!event.scalars.contains("train/loss")) continue;
    const auto& record = records.at(steps++);
    CHECK(event.step == record.at("step").as_int64());
    for (const auto* key : {"loss", "lr", "grad_norm"})
      CHECK(event.scalars.at(std::string("train/") + key) == static_cast<float>(record.at(key).to_number<double>()));
    CHECK(event.scalars.at("train/samples_per_s") > 0);
  }
  CHECK(steps == 7);
  CHECK(evaluations == 2);  // after the first epoch, of 6 steps, and at the end
  run(10);
  auto files = files_in(dir / "logs");
  REQUIRE(files.size() == 2);
  std::erase(files, first);
  const auto more = events_in(files[0]);
  CHECK(more[1].starts_session);
  CHECK(more[1].step == 8);
  CHECK(more[2].step == 8);
  CHECK(more.back().step == 10);
}
