#include "worker/trainer/session/step_batches.h"

#include "worker/trainer/session/rank_times.h"
#include "tests/numerics/training_job.h"
#include "tests/support/catch.h"

using namespace ddprun;
using namespace ddprun::testing;
using trainer::StepBatches;

namespace {

// Ten samples are divided into steps of six, for two ranks.
class Fixture {
 public:
  StepBatches batches(bool balances = false) {
    return {job_.config(),
            job_.datasets(),
            {.size = 10, .step_samples = 6, .parts = 2},
            {.rank = 0, .ranks = 2, .micro_batch = 2, .balances = balances}};
  }
  StepBatches batches_of_shards() {
    return {job_.config(),
            job_.datasets(),
            {.size = 10, .step_samples = 6, .parts = 5},
            {.rank = 0, .ranks = 2, .micro_batch = 2}};
  }

 private:
  const TrainingJob job_{
      "[model]\nname = mlp\n[data]\nname = random\nsamples = 10\ntest_samples = 10\nworkers = 0\nshuffle = false\n"
      "[train]\naccumulate = 2\n"};
};

// Returns the numbers of samples of the remaining batches.
std::vector<std::int64_t> sizes_of(StepBatches& batches) {
  std::vector<std::int64_t> sizes;
  while (const auto batch = batches.next()) sizes.push_back(batch->size());
  return sizes;
}

}  // namespace

TEST_CASE("a rank has as many micro-batches in a step as its share needs") {
  Fixture fixture;
  const auto batches = fixture.batches();
  CHECK(batches.own_count(6) == 2);
  CHECK(batches.count(4, 1) == 1);
  CHECK(batches.count(1, 1) == 0);
  CHECK(batches.largest_count(5, 2) == 2);
  CHECK_NOTHROW(batches.require_equal_counts(6));
  CHECK_THROWS_WITH(batches.require_equal_counts(5), Catch::Contains("rank 0 has 2 micro-batches and rank 1 1"));
}

TEST_CASE("the batches of an epoch begin where the run stands") {
  Fixture fixture;
  auto batches = fixture.batches();
  checkpoint::RunState run;
  batches.open(run);
  CHECK(sizes_of(batches) == std::vector<std::int64_t>{2, 1, 2});
  batches.close();
  run.samples = 6;
  batches.open(run);
  CHECK(sizes_of(batches) == std::vector<std::int64_t>{2});
}

TEST_CASE("a rank has a batch for each of its shards, and in the next step those that are named") {
  Fixture fixture;
  auto batches = fixture.batches_of_shards();  // shards of 2, 1, 1, 1, 1 samples; rank 0 of two has the first two
  checkpoint::RunState run;
  batches.open(run, std::vector<int>{0, 1});
  CHECK(batches.own_count(6) == 2);
  CHECK(batches.count(6, 1) == 3);
  CHECK(batches.count(1, 1) == 0);
  batches.open(run, std::vector<int>{3});
  CHECK(batches.own_count(6) == 1);
  CHECK(batches.next()->samples == std::vector<std::int64_t>{3});
  batches.open(run, std::vector<int>{0, 1});  // of the step that follows
  CHECK(batches.own_count(4) == 2);
}

TEST_CASE("a faster rank gets larger micro-batches, not more of them, from the next step on") {
  Fixture fixture;
  const std::vector<profiler::StepTimes> times{{.forward = std::chrono::seconds(20)},
                                               {.forward = std::chrono::seconds(100)}};
  auto even = fixture.batches();
  CHECK(even.balance(times).empty());
  auto batches = fixture.batches(true);
  const checkpoint::RunState run;
  batches.open(run);
  CHECK_FALSE(batches.balance(times).empty());
  CHECK(batches.own_count(6) == 2);
  batches.open(run);
  CHECK(sizes_of(batches).front() == 3);
}

TEST_CASE("ranks that have the same samples get the share of the slowest of them") {
  Fixture fixture;
  auto batches = fixture.batches(true);
  std::vector<profiler::StepTimes> ranks(4);  // two neighbours have the same samples
  for (auto& times : ranks) times.forward = profiler::Seconds(trainer::RankTimes::window * 1.0);
  ranks[1].forward *= 4;
  CHECK_THAT(batches.balance(ranks), !Catch::Equals(""));
  checkpoint::RunState run;
  batches.open(run);
  CHECK(batches.next()->size() == 1);  // of three samples, one in each of two micro-batches: two are slow
}
