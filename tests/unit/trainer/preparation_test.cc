#include "worker/trainer/commands/preparation.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "common/deadline.h"
#include "worker/comm/execution/previous_group.h"
#include "worker/comm/memory/segment_reserve.h"
#include "worker/trainer/session/replicas.h"
#include "worker/trainer/state/train_state.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/pages.h"
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

TEST_CASE("the memory of the gradients is made ahead for the job's group, by the group of the step before") {
  const TempDir dir;
  const Configured job(job_text(dir));
  const auto prepared = trainer::prepare_run(job.config, job.settings, {}, 2);
  REQUIRE(prepared);
  auto& segments = *prepared->own_group->segments;
  std::size_t gradients = 0;
  for (const auto& [name, parameter] : prepared->state.model->named_parameters())
    gradients += static_cast<std::size_t>(parameter.value().numel()) * sizeof(float);
  for (const auto end = Deadline::in(std::chrono::minutes(1)); segments.held() < gradients; std::this_thread::yield())
    REQUIRE_FALSE(end.expired());
  const auto bytes = segments.held();  // a small model has one bucket
  segments.begin_group();
  const auto taken = segments.take(bytes);
  CHECK(has_pages(taken.data(), taken.bytes()));
}

TEST_CASE("a run that cannot be prepared is left to itself") {
  const TempDir dir;
  const Configured job("[data]\nname = mnist\ndir = " + (dir / "missing").string() + "\n");
  CHECK_FALSE(trainer::prepare_run(job.config, job.settings, {}, 2));
}
