#include "worker/trainer/commands/preparation.h"

#include <csignal>
#include <filesystem>
#include <string>

#include "worker/trainer/session/replicas.h"
#include "worker/trainer/state/train_state.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

std::string job_text(const TempDir& dir) {
  return "[model]\nname = cnn_bn\n[data]\nname = digits\nsamples = 64\ntest_samples = 10\n[train]\nbatch_size = 8\n"
         "[checkpoint]\ndir = " +
         (dir / "checkpoints").string() + "\n[metrics]\nfile = " + (dir / "metrics").string() +
         "\n[recovery]\nfile = " + (dir / "recoveries").string() + "\n";
}

struct Configured {
  explicit Configured(const std::string& text) {
    trainer::bind(settings, config);
    apply(settings, parse_config(text, "job"), Origin::file);
  }
  trainer::TrainConfig config;
  Settings settings;
};

}  // namespace

TEST_CASE("a run is prepared without any trace of it") {
  const TempDir expected_dir, dir;
  const auto expected = TrainingJob(job_text(expected_dir)).run(2).front().parameter_digest;
  const Configured job(job_text(dir));
  sigset_t before, after;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  const auto prepared = trainer::prepare_run(job.config, job.settings, {}, 2);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
  REQUIRE(prepared);
  CHECK(prepared->datasets.train->size() == 64);
  CHECK_FALSE(prepared->items.empty());
  const auto initial =
      trainer::make_model(job.config.model, prepared->datasets.train->layout(), 10, job.config.train.seed);
  CHECK(trainer::parameter_digest(*prepared->state.model) == trainer::parameter_digest(*initial));
  CHECK(prepared->state.run.step == 0);
  CHECK(std::filesystem::is_empty(dir.path()));
  CHECK(sigismember(&before, SIGTERM) == sigismember(&after, SIGTERM));
  CHECK(TrainingJob(job_text(dir)).run(2).front().parameter_digest == expected);
}

TEST_CASE("a run that cannot be prepared is left to itself") {
  const TempDir dir;
  const Configured job("[data]\nname = mnist\ndir = " + (dir / "missing").string() + "\n");
  CHECK_FALSE(trainer::prepare_run(job.config, job.settings, {}, 2));
}
