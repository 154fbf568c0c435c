// The accuracy of the main job on generated and on real digits.
#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("the accuracy on generated digits is at least 97 %") {
  CHECK(accuracy_of(run_job(two_ranks({"--data.name=digits"}))) >= 97.0);
}

TEST_CASE("the accuracy after training on 8,000 real digits is at least 97.5 %") {
  const auto folder = Environment::capture().get("DDPRUN_TEST_DATA");
  if (!folder) SKIP("DDPRUN_TEST_DATA names no folder with mnist-10k");
  const auto result = run_job(two_ranks({"--data.dir=" + *folder + "/mnist-10k", "--train.epochs=10"}));
  CHECK_THAT(result.out, Catch::Contains("done: 630 steps"));
  CHECK(accuracy_of(result) >= 97.5);
}
