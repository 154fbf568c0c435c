// The accuracy of the main job on generated and on real digits.
#include <cmath>

#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("the accuracy on generated digits is at least 97 %") {
  CHECK(accuracy_of(run_job(two_ranks({"--data.name=digits"}))) >= 97.0);
}

TEST_CASE("16 bits learn as well as 32, within 0.2 points of accuracy on real digits") {
  const auto folder = Environment::capture().get("DDPRUN_TEST_DATA");
  const Words data =
      folder ? Words{"--data.dir=" + *folder + "/mnist-10k", "--train.epochs=10"}
             : Words{"--data.name=digits", "--data.test_samples=10000", "--train.epochs=5", "--optim.schedule=cosine"};
  const auto accuracy = [&](const std::string& precision) {
    Words words = data;
    words.push_back("--train.precision=" + precision);
    return accuracy_of(run_job(two_ranks(words)));
  };
  const double expected = accuracy("fp32");
  const double tolerance = folder ? 0.2 : 0.5;  // generated digits have differed by 0.25 points
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
