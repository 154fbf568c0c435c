// What the main job learns, on generated and on real digits.
#include "tests/process/worker.h"

using namespace ddprun;
using namespace ddprun::testing;

TEST_CASE("the generated digits are learnt to 97 %") {
  CHECK(accuracy_of(run_job(two_ranks({"--data.name=digits"}))) >= 97.0);
}

TEST_CASE("the real digits are learnt to 97.5 % from 8,000 of them") {
  const auto folder = Environment::capture().get("DDPRUN_TEST_DATA");
  if (!folder) SKIP("DDPRUN_TEST_DATA names no folder with mnist-10k");
  const auto result = run_job(two_ranks({"--data.dir=" + *folder + "/mnist-10k", "--train.epochs=10"}));
  CHECK_THAT(result.out, Catch::Contains("done: 630 steps"));
  CHECK(accuracy_of(result) >= 97.5);
}
