// The accuracy of the main job on generated and on real digits, and of a student with and without its teacher.
#include <cmath>

#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("the accuracy on generated digits is at least 97 %") {
  CHECK(accuracy_of(run_job(two_ranks({"--data.name=digits"}))) >= 97.0);
}

// The averages of the parameters over the last steps are evaluated: without them, runs whose steps are rounded
// differently have differed by nearly as much as the bound, also in 32 bits on two processors.
TEST_CASE("16 bits learn as well as 32, within 0.2 points of accuracy on real digits") {
  const auto folder = Environment::capture().get("DDPRUN_TEST_DATA");
  const Words data = folder ? Words{"--data.dir=" + *folder + "/mnist-10k", "--train.epochs=10"}
                            : Words{"--data.name=digits", "--data.test_samples=10000", "--train.epochs=5"};
  const auto accuracy = [&](const std::string& precision) {
    Words words = data;
    words.insert(words.end(), {"--train.precision=" + precision, "--train.ema=0.99"});
    return accuracy_of(run_job(two_ranks(words)));
  };
  const double expected = accuracy("fp32");
  const double tolerance = folder ? 0.2 : 0.5;
  for (const char* precision : {"bf16", "fp16"}) {
    INFO(precision);
    CHECK(std::abs(accuracy(precision) - expected) < tolerance);
  }
}

TEST_CASE("the accuracy after training on 8,000 real digits is at least 97.5 %") {
  const auto folder = Environment::capture().get("DDPRUN_TEST_DATA");
  if (!folder) SKIP("DDPRUN_TEST_DATA names no folder with mnist-10k");
  const auto result = run_job(two_ranks({"--data.dir=" + *folder + "/mnist-10k", "--train.epochs=10"}));
  CHECK_THAT(result.out, Catch::Contains("done: 630 steps"));
  CHECK(accuracy_of(result) >= 97.5);
}

TEST_CASE("a student of few samples is at least 3 points better with its teacher than without") {
  const TempDir dir;
  const auto taught = run_worker(
      {config("mnist.cfg"), "--data.name=digits", "--train.max_steps=400", "--checkpoint.dir=" + dir.path().string()});
  REQUIRE(accuracy_of(taught) > 90);
  const auto weights = dir / "step_000400/model.safetensors";
  constexpr int seeds = 3;
  double gain = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    Words job{
        config("mnist_mlp.cfg"), "--data.name=digits", "--data.samples=200",    "--model.hidden=32",
        "--model.dropout=0",     "--train.epochs=40",  "--train.batch_size=32", "--train.seed=" + std::to_string(seed)};
    const double alone = accuracy_of(run_worker(job));
    job.insert(job.end(), {"--train.task=distillation", "--distill.teacher=cnn", "--distill.weight=0.9",
                           "--distill.weights=" + weights.string()});
    const double with_teacher = accuracy_of(run_worker(job));
    INFO("seed " << seed << ": " << alone << " % alone, " << with_teacher << " % with the teacher");
    CHECK(with_teacher > alone);
    gain += (with_teacher - alone) / seeds;
  }
  CHECK(gain >= 3);
}
