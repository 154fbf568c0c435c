#include "worker/optim/lr_schedule.h"

#include <cmath>
#include <set>

#include "worker/trainer/session/replicas.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/lr_schedule_figures.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/sessions.h"

using namespace ddprun;
using namespace ddprun::testing;
using optim::LrSchedule;

namespace {

// Returns the learning rate of every step of a job, from its metrics.
std::vector<double> rates_of(const std::string& optim, std::int64_t steps_to_do = 0) {
  TempDir dir;
  TrainingJob(
      "[model]\nname = linear\n[data]\nname = random\nsamples = 24\ntest_samples = 2\n[train]\nbatch_size = "
      "8\nepochs = 4\nmax_steps = " +
      std::to_string(steps_to_do) + "\n[metrics]\nfile = " + (dir / "m").string() + "\n[optim]\nlr = 0.5\n" + optim)
      .run(1);
  std::vector<double> rates;
  std::istringstream lines(read_whole_file(dir / "m"));
  for (std::string line; std::getline(lines, line);) {
    const auto record = boost::json::parse(line).as_object();
    if (record.contains("lr")) rates.push_back(record.at("lr").to_number<double>());
  }
  return rates;
}

std::vector<double> rounded(std::vector<double> values) {
  for (auto& value : values) value = std::round(value * 1e6) / 1e6;
  return values;
}

}  // namespace

TEST_CASE("the learning rates are those of torch.optim.lr_scheduler") {
  std::set<std::string> seen;
  for (const auto& [options, rates] : lr_figures) {
    INFO(options.name << ", warm-up " << options.warmup);
    const LrSchedule schedule(options);
    REQUIRE(rates.size() >= 25);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      INFO("step " << i);
      CHECK(schedule.at(static_cast<std::int64_t>(i)) == Approx(rates[i]).epsilon(1e-12));
    }
    seen.insert(options.name);
  }
  seen.insert("plateau");  // its curve is constant, its reductions are in plateau_test.cc
  const auto names = LrSchedule::names();
  CHECK(seen == std::set<std::string>(names.begin(), names.end()));
}

TEST_CASE("beyond its length a curve keeps its last value") {
  const auto last = [](const char* name) {
    const LrSchedule schedule({.name = name, .lr = 1, .length = 10, .end_factor = 0.25});
    CHECK(schedule.at(1000) == schedule.at(10));
    return schedule.at(10);
  };
  CHECK(last("cosine") == Approx(0.25));
  CHECK(last("linear") == Approx(0.25));
  CHECK(last("onecycle") == Approx(1 / 25.0 / 1e4));
  CHECK_THROWS_WITH(LrSchedule({.name = "cosin"}), "there is no learning rate schedule cosin");
}

TEST_CASE("a rate is finite and positive however short the curve") {
  for (const auto& name : LrSchedule::names())
    for (std::int64_t length = 1; length < 5; ++length)
      for (std::int64_t warmup = 0; warmup < length; ++warmup) {
        const LrSchedule schedule({.name = name, .lr = 1, .warmup = warmup, .length = length, .end_factor = 0.1});
        for (std::int64_t time = 0; time < 6; ++time) {
          INFO(name << ", length " << length << ", warm-up " << warmup << ", time " << time);
          CHECK(schedule.at(time) > 0);
          CHECK(schedule.at(time) <= 1);
        }
      }
}

TEST_CASE("a job's learning rate follows its schedule, in steps or epochs") {
  CHECK(rates_of("") == std::vector<double>(12, 0.5));
  CHECK(rounded(rates_of("schedule = linear\n", 5)) == std::vector<double>{0.5, 0.4, 0.3, 0.2, 0.1});
  CHECK(rounded(rates_of("schedule = linear\nschedule_length = 10\nwarmup = 2\nwarmup_start = 0.5\n", 5)) ==
        std::vector<double>{0.25, 0.375, 0.5, 0.4375, 0.375});
  CHECK(rounded(rates_of("schedule = step\nschedule_unit = epochs\nstep_size = 2\n")) ==
        std::vector<double>{0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05});
  CHECK(rounded(rates_of("schedule = linear\nschedule_unit = epochs\n")) ==
        std::vector<double>{0.5, 0.5, 0.5, 0.375, 0.375, 0.375, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125});
  CHECK(rounded(rates_of("warmup = 100\nwarmup_start = 0\n", 3)) == std::vector<double>{0, 0.005, 0.01});
  CHECK(rounded(rates_of("schedule = cosine\nwarmup = 100\nwarmup_start = 0\n", 3)) ==
        std::vector<double>{0, 0.005, 0.01});
}

TEST_CASE("a run that resumes goes on along the same curve with the same bits") {
  for (const auto& name : LrSchedule::names()) {
    INFO(name);
    const auto job = [&](const TempDir& dir, std::int64_t steps) {
      const std::string length = LrSchedule::has_length(name) ? "schedule_length = 12\n"
                                 : name == "step"             ? "step_size = 2\n"
                                 : name == "multistep"        ? "milestones = 2 5\n"
                                                              : "";
      return TrainingJob(
          "[model]\nname = linear\n[data]\nname = random\nsamples = 50\ntest_samples = 2\n[optim]\nname = "
          "sgd\nlr = 0.1\nmomentum = 0.9\nwarmup = 3\nschedule = " +
          name + "\n" + length + "[train]\nbatch_size = 8\nepochs = 3\nmax_steps = " + std::to_string(steps) +
          "\n[checkpoint]\nevery_steps = 5\ndir = " + (dir / "checkpoints").string() +
          "\n[metrics]\nfile = " + (dir / "m").string() + "\n");
    };
    TempDir undisturbed, dir;
    const auto expected = job(undisturbed, 12).run(2)[0];
    job(dir, 7).run(2);
    std::filesystem::remove_all(dir / "checkpoints/step_000007");  // as if killed at step 7, before it was saved
    const auto again = job(dir, 12).run(2)[0];
    CHECK(again.steps == 12);
    CHECK(again.parameter_digest == expected.parameter_digest);
    CHECK(losses_in(dir / "m") == losses_in(undisturbed / "m"));
  }
}

TEST_CASE("a curve that ends with the run is the same in another session") {
  TrainingJob job(
      "[model]\nname = linear\n[data]\nname = random\nsamples = 50\ntest_samples = 2\n[optim]\nschedule = cosine\n"
      "warmup = 2\n[train]\nbatch_size = 8\nepochs = 3\n");
  const auto undisturbed = job.run(1)[0];
  Replica replica(job);
  for (const int steps : {8, static_cast<int>(undisturbed.steps) - 8})
    run_ranks(1, [&](ProcessGroup& group) {
      const auto session = replica.session(group);
      for (int i = 0; i < steps; ++i) session->step(false);
    });
  CHECK(trainer::parameter_digest(*replica.state.model) == undisturbed.parameter_digest);
}
