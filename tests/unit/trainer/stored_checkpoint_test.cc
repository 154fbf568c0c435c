// Checkpoints that earlier versions wrote: tests/fixtures/checkpoint_v1 is one, with its job and the losses of the same
// job without a stop.
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace ddprun;
using namespace ddprun::testing;

namespace {

const std::filesystem::path fixture = std::filesystem::path(DDPRUN_FIXTURES) / "checkpoint_v1";

constexpr const char* digest_of_step_10 = "917b48514a25e2cfefef359e1084df59736f9012bed505fc65c09c53205cf0a3";

trainer::Summary run(const TempDir& dir, const std::string& more = {}) {
  const auto job = read_whole_file(fixture / "train.cfg") + "[metrics]\nfile = " + (dir / "metrics").string() + "\n";
  return TrainingJob(job + more).run(2)[0];
}

// Resumes from a copy of the stored checkpoint.
trainer::Summary resume(const TempDir& dir, const std::string& more = {}) {
  const auto folder = dir / "checkpoints";
  std::filesystem::create_directory(folder);
  std::filesystem::copy(fixture / "step_000010", folder / "step_000010");
  return run(dir, "[checkpoint]\nresume = require\ndir = " + folder.string() + "\n" + more);
}

}  // namespace

TEST_CASE("a stored checkpoint is read to the bit") {
  TempDir dir;
  const auto summary = resume(dir, "[train]\nmax_steps = 10\n");
  CHECK(summary.steps == 10);
  CHECK(summary.parameter_digest == digest_of_step_10);
}

// The bits differ, since the arithmetic of the version that wrote the checkpoint rounded otherwise.
TEST_CASE("a run resumed from a stored checkpoint ends as the one that was not stopped") {
  TempDir dir, undisturbed;
  const auto resumed = resume(dir), whole = run(undisturbed);
  CHECK(resumed.steps == 21);
  CHECK(resumed.evaluation.loss == Approx(whole.evaluation.loss).epsilon(1e-5));
}

TEST_CASE("the losses behind a stored checkpoint are those that were stored") {
  TempDir dir;
  // The records of earlier steps are those that the run that wrote the checkpoint left.
  std::filesystem::copy(fixture / "metrics.jsonl", dir / "metrics");
  resume(dir);
  const auto losses = losses_in(dir / "metrics"), stored = losses_in(fixture / "metrics.jsonl");
  REQUIRE(losses.size() == stored.size());
  for (std::size_t i = 0; i < stored.size(); ++i) CHECK(losses[i] == Approx(stored[i]).epsilon(1e-4));
}
