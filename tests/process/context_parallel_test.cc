// Jobs of real processes whose ranks divide the positions of each sample.
#include <fmt/format.h>

#include "tests/process/divided_job.h"

using namespace ddprun::testing;

namespace {

const std::string key = "parallel.context";

}  // namespace

TEST_CASE("processes that divide positions learn as one, through shared memory and over gloo") {
  check_learns_as_one(DividedJob("gpt", key));
}

// Each of 4 layers sends (ranks - 1) blocks of keys and values three times; the gradients take an allreduce.
TEST_CASE("what processes that divide positions send is what the formula says") {
  constexpr double layers = 4, width = 32, context = 16, batch = 16;
  const DividedJob job("gpt", key);
  for (const int ranks : {2, 4}) {
    INFO(ranks);
    const auto records =
        job.records(ranks, ranks, {"--train.max_steps=3", "--dist.backend=gloo", "--train.memory_report=true"});
    const double ring = layers * 3 * (ranks - 1) * 2 * batch * context / ranks * width * 4;
    const double gradients = 2.0 * (ranks - 1) / ranks * records.memory.gradients;
    CHECK(records.bytes_sent.at(2) == Approx(ring + gradients).epsilon(0.01));
  }
}

TEST_CASE("a rank of four has about a quarter of the activations of a long context") {
  const DividedJob job("gpt", key, {.context = 1024, .batch = 1});
  const Words words{"--train.max_steps=2", "--train.memory_report=true", "--eval.every_epochs=0"};
  const double one = job.records(1, 1, words).memory.activations, four = job.records(4, 4, words).memory.activations;
  CHECK(four < one / 4 * 1.05);
}

// ulimit -d bounds a process's allocations, without its shared memory. A rank of four was measured to need less than
// 240 MB. One rank runs without the bound: where memory ends, oneDNN does not always report an error.
TEST_CASE("four ranks train under a memory limit below what one rank keeps, and learn the same") {
  constexpr double limit = 300e6;
  const DividedJob job("gpt", key, {.context = 512, .batch = 64});
  const Words step{"--train.max_steps=1", "--eval.every_epochs=0", "--train.memory_report=true"};
  Words words{"/bin/sh", "-c", fmt::format("ulimit -d {} && exec \"$0\" \"$@\"", static_cast<int>(limit / 1024))};
  const Words four_ranks = job.words(4, 4, step);
  words.insert(words.end(), four_ranks.begin(), four_ranks.end());
  const auto result = Child(words, one_thread).wait(std::chrono::seconds(100));
  INFO(result.out << result.err);
  REQUIRE(result.code == 0);
  const auto four = read_records(job.metrics()), one = job.records(1, 1, step);
  CHECK(one.memory.activations > limit);
  CHECK(largest_difference(one.losses, four.losses, 1) < 1e-6);
}
